"""Groups of all kinds: the list, a group with members, assignments and lag, and its reset."""

from __future__ import annotations

from starlette.responses import Response

from kstore.acls import AclOperation
from kstore.cli.arguments import parse_datetime_ms
from kstore.console.cluster.resets import WAYS, offset_of, plan
from kstore.console.pages.page import Page, PageError, may, path, whole
from kstore.console.pages.shown import shown_count
from kstore.errors import KafkaError
from kstore.types import OffsetAndMetadata, TopicPartition

__all__ = ["delete", "group", "groups", "reset", "reset_plan"]

KINDS = ("classic", "consumer", "streams", "share")


async def groups(page: Page) -> Response:
    """GET /ui/groups."""
    wanted, kind = page.text("q"), page.text("kind")
    found = [
        each
        for each in await page.admin.list_groups()
        if wanted.lower() in each.group_id.lower() and kind in {"", each.group_type}
    ]
    shown = page.rows(found)
    ids = [row.group_id for row in shown["rows"] if row.group_type != "share"]
    details = await page.admin.describe_groups(ids, raise_errors=False)
    lags = {row.group_id: page.session.sampler.series("group-lag", row.group_id) for row in found}
    most = sorted((n for n in lags if lags[n]), key=lambda n: -lags[n][-1][1])[:6]
    return page.render(
        "groups.html", title="Groups", found=shown, details=details, q=wanted, kind=kind,
        kinds=KINDS, sampler=page.session.sampler, lags={name: list(lags[name]) for name in most},
    )  # fmt: skip


async def group(page: Page) -> Response:
    """GET /ui/groups/ID."""
    name = page.name("group")
    listed = {each.group_id: each for each in await page.admin.list_groups()}
    if name in listed and listed[name].group_type == "share":
        return page.render("share_group.html", title=name, listing=listed[name])
    described = await page.admin.describe_groups([name], authorized_operations=True)
    found = described[name]
    offsets = await page.admin.list_group_offsets(name, raise_errors=False)
    owners: dict[TopicPartition, str] = {}
    for member in found.members:
        owners |= dict.fromkeys(member.assignment, member.member_id)
    every = sorted({*offsets, *owners})
    ends = await page.admin.list_offsets(dict.fromkeys(every, "latest"), raise_errors=False)
    rows = [
        {
            "tp": tp,
            "committed": offsets.get(tp),
            "end": ends[tp].offset if tp in ends else None,
            "lag": max(ends[tp].offset - offsets[tp].offset, 0)
            if tp in ends and tp in offsets else None,
            "owner": owners.get(tp, ""),
        }
        for tp in every
    ]  # fmt: skip
    known = [row["lag"] for row in rows if isinstance(row["lag"], int)]
    operations = found.authorized_operations
    return page.render(
        "group.html", title=name, group=found, shown=page.rows(rows),
        lag=sum(known) if known else None,
        history={"lag": list(page.session.sampler.series("group-lag", name))},
        may_reset=may(operations, AclOperation.READ),
        may_delete=may(operations, AclOperation.DELETE),
    )  # fmt: skip


def _number(way: str, text: str) -> int | None:
    """The number for a way, as it was typed. Raises ValueError."""
    if way in {"earliest", "latest"} or not text:
        return None
    if way == "time":
        import typer

        try:
            return parse_datetime_ms(text)
        except typer.BadParameter as error:
            raise ValueError(str(error)) from None
    return whole(text, WAYS.get(way, way), 0, -(2**62), 2**62)


async def reset_plan(page: Page) -> Response:
    """GET /ui/groups/ID/reset: a dry run, which changes nothing."""
    name, way, topic = page.name("group"), page.text("way"), page.text("topic")
    described = await page.admin.describe_groups([name], raise_errors=False)
    members = len(described[name].members) if name in described else 0
    committed = await page.admin.list_group_offsets(name, raise_errors=False)
    moves, problem = [], ""
    if way:
        try:
            moves = await plan(page.admin, name, topic, way, _number(way, page.text("value")))
        except (ValueError, PageError, KafkaError) as error:
            problem = str(error)
    return page.render(
        "reset.html", title=f"Reset offsets of {name}", group=name, ways=WAYS, way=way or "latest",
        topic=topic, value=page.text("value"), moves=moves, problem=problem, members=members,
        topics=sorted({tp.topic for tp in committed}),
    )  # fmt: skip


async def reset(page: Page) -> Response:
    """POST /ui/groups/ID/reset: commit the offsets of the dry run."""
    name = page.name("group")
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for line in page.form.get("offsets", "").split():
        place, _, value = line.rpartition("=")
        topic, _, partition = place.rpartition(":")
        offset, _, life = value.partition("@")
        if not (topic and partition.isdecimal() and offset.isdecimal()):
            raise PageError(f"{line[:100]!r} is not TOPIC:PARTITION=OFFSET")
        meant = offset_of(int(offset), int(life) if life.isdecimal() else -1)
        offsets[TopicPartition(topic, int(partition))] = meant
    if not offsets:
        raise PageError("there are no offsets to commit")
    try:
        outcome = await page.admin.alter_group_offsets(name, offsets, raise_errors=False)
    except KafkaError as error:
        return page.failed(str(error), path("groups", name))
    for tp, refused in outcome.errors.items():
        page.session.notices.append(("error", f"{tp.topic}-{tp.partition}: {refused}"))
    if outcome.errors and not outcome:
        return page.failed("No offset was changed.", path("groups", name))
    were = "was" if len(outcome) == 1 else "were"
    count = shown_count(len(outcome), "offset")
    return page.done(f"{count} of {name} {were} reset.", path("groups", name))


async def delete(page: Page) -> Response:
    """POST /ui/groups/ID/delete; the user must type the id again."""
    name = page.name("group")
    if page.form.get("confirm", "").strip() != name:
        return page.failed(f"Type {name} to delete the group.", path("groups", name))
    try:
        await page.admin.delete_groups([name])
    except KafkaError as error:
        return page.failed(str(error), path("groups", name))
    return page.done(f"Group {name} was deleted.", path("groups"))
