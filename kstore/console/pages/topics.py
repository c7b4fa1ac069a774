"""Topics: the list, a topic with its partitions, and its operations."""

from __future__ import annotations

from starlette.responses import Response

from kstore.acls import AclOperation
from kstore.clients.admin import NewTopic
from kstore.console.pages.overview import log_dirs
from kstore.console.pages.page import Page, PageError, may, path, whole
from kstore.console.pages.shown import shown_count
from kstore.errors import KafkaError
from kstore.types import TopicPartition

__all__ = ["create", "delete", "elect", "expand", "topic", "topics"]

MAX_PARTITIONS = 100_000


async def topics(page: Page) -> Response:
    """GET /ui/topics."""
    wanted, internal = page.text("q"), page.text("internal") == "1"
    found = await page.admin.describe_topics()
    rows = [
        each for each in found
        if wanted.lower() in each.name.lower() and (internal or not each.is_internal)
    ]  # fmt: skip
    sampler = page.session.sampler
    cluster = await page.admin.describe_cluster(authorized_operations=True)
    return page.render(
        "topics.html", title="Topics", found=page.rows(rows), q=wanted, internal=internal,
        hidden=sum(each.is_internal for each in found) if not internal else 0, sampler=sampler,
        may_create=may(cluster.authorized_operations, AclOperation.CREATE),
    )  # fmt: skip


async def topic(page: Page) -> Response:
    """GET /ui/topics/NAME."""
    name = page.name("topic")
    (found,) = await page.admin.describe_topics([name], authorized_operations=True)
    every = [TopicPartition(name, part.partition) for part in found.partitions]
    shown = page.rows(list(found.partitions))
    here = [TopicPartition(name, part.partition) for part in shown["rows"] if part.leader >= 0]
    starts = await page.admin.list_offsets(dict.fromkeys(here, "earliest"), raise_errors=False)
    ends = await page.admin.list_offsets(dict.fromkeys(here, "latest"), raise_errors=False)
    dirs, no_dirs = await log_dirs(page)
    sizes: dict[int, dict[int, int]] = {}
    for broker, own in dirs.items():
        for log_dir in own.values():
            for tp, replica in log_dir.replicas.items():
                if tp.topic == name and not replica.is_future:
                    sizes.setdefault(tp.partition, {})[broker] = replica.size_bytes
    operations, sampler = found.authorized_operations, page.session.sampler
    return page.render(
        "topic.html", title=name, topic=found, shown=shown, starts=starts, ends=ends, sizes=sizes,
        no_dirs=no_dirs, tp=TopicPartition, total=len(every),
        may_read=may(operations, AclOperation.READ), may_write=may(operations, AclOperation.WRITE),
        may_alter=may(operations, AclOperation.ALTER),
        may_delete=may(operations, AclOperation.DELETE),
        rate={"records": list(sampler.series("topic-rate", name))},
        size={"bytes": list(sampler.series("topic-size", name))},
    )  # fmt: skip


async def create(page: Page) -> Response:
    """POST /ui/topics."""
    form = page.form
    name = form.get("name", "").strip()
    if not name:
        raise PageError("enter the topic's name")
    count = whole(form.get("partitions", ""), "partitions", -1, 1, MAX_PARTITIONS)
    factor = whole(form.get("replication", ""), "replication factor", -1, 1, 1000)
    settings: dict[str, str | None] = {}
    for line in filter(None, map(str.strip, form.get("configs", "").split("\n"))):
        key, equals, value = line.partition("=")
        if not equals:
            raise PageError(f"{line!r} is not KEY=VALUE, such as retention.ms=86400000")
        settings[key.strip()] = value.strip()
    try:
        await page.admin.create_topics([NewTopic(name, count, factor, settings)])
    except KafkaError as error:
        return page.failed(str(error), path("topics"))
    return page.done(f"Topic {name} was created.", path("topics", name))


async def expand(page: Page) -> Response:
    """POST /ui/topics/NAME/partitions."""
    name = page.name("topic")
    total = whole(page.form.get("total", ""), "number of partitions", -1, 1, MAX_PARTITIONS)
    try:
        await page.admin.create_partitions(name, total)
    except KafkaError as error:
        return page.failed(str(error), path("topics", name))
    return page.done(f"{name} has {shown_count(total, 'partition')} now.", path("topics", name))


async def elect(page: Page) -> Response:
    """POST /ui/topics/NAME/elect: the preferred leaders."""
    name = page.name("topic")
    (found,) = await page.admin.describe_topics([name])
    wanted = [
        TopicPartition(name, part.partition)
        for part in found.partitions
        if part.replicas and part.leader != part.replicas[0]
    ]
    if not wanted:
        return page.done("All partitions already have the preferred leader.", path("topics", name))
    outcome = await page.admin.elect_leaders(wanted, raise_errors=False)
    for tp, error in outcome.errors.items():
        page.session.notices.append(("error", f"{tp.topic}-{tp.partition}: {error}"))
    return page.done(f"{len(outcome)} leaders were elected.", path("topics", name))


async def delete(page: Page) -> Response:
    """POST /ui/topics/NAME/delete; the user must type the name again."""
    name = page.name("topic")
    if page.form.get("confirm", "").strip() != name:
        return page.failed(f"Type {name} to delete the topic.", path("topics", name))
    try:
        await page.admin.delete_topics([name])
    except KafkaError as error:
        return page.failed(str(error), path("topics", name))
    return page.done(f"Topic {name} was deleted.", path("topics"))
