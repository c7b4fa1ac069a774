"""``kstore group``: groups of every type, their members and offsets. group_reset.py has
reset-offsets, group_verify.py has verify, share_group.py what differs for share groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kstore.cli import completion
from kstore.cli.admin import share_group
from kstore.cli.admin.group_reset import register as register_reset
from kstore.cli.admin.group_verify import register as register_verify
from kstore.cli.admin_command import admin_command
from kstore.cli.arguments import each_of, parse_partitions
from kstore.cli.failure import FAILED, fail
from kstore.cli.output import Output
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.clients import AdminClient
    from kstore.clients.admin import GroupDescription

__all__ = ["app"]

app = typer.Typer(
    help="List, describe and delete groups; show, reset and delete their offsets.",
    no_args_is_help=True,
)
register_reset(app)
register_verify(app)

Group = Annotated[str, typer.Argument(help="The group's id.", autocompletion=completion.groups)]
Groups = Annotated[
    list[str],
    typer.Argument(metavar="GROUP", autocompletion=completion.groups, help="The groups' ids."),
]


TYPES = ("classic", "consumer", "share", "streams")
STATES = (
    "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning",
    "Reconciling", "NotReady",
)  # fmt: skip


@admin_command(app, "list", "kstore group list --state Empty --type consumer")
def list_groups(
    admin: AdminClient,
    out: Output,
    state: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=completion.words(*STATES),
            help="Show only groups in this state, such as Stable; may be repeated.",
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            autocompletion=completion.words(*TYPES),
            help="Show only groups of this type: classic, consumer, share or streams.",
        ),
    ] = None,
) -> None:
    """List the groups of all coordinators."""
    rows = [
        {
            "group": row.group_id,
            "type": row.group_type or None,
            "state": row.state or None,
            "protocol": row.protocol_type or None,
        }
        for row in admin.list_groups(
            states=each_of("--state", state, STATES), types=each_of("--type", kind, TYPES)
        )
    ]
    out.table(rows, ["group", "type", "state", "protocol"])


@admin_command(app, "describe", "kstore group describe billing")
def describe(admin: AdminClient, out: Output, groups: Groups) -> None:
    """Show a group's state, and the offset, lag and member of each partition."""
    found = admin.describe_groups(groups, raise_errors=False)
    for group in found.values():
        columns = ["topic", "partition", "committed", "end_offset", "lag", "client_id", "host"]
        if group.group_type == "share":
            columns = ["topic", "partition", "start_offset", "lag", "members", "client_ids"]
            offsets = share_group.offsets(admin, group)
        else:
            offsets = _offsets(admin, group)
        if out.json:
            out.print(_summary(group) | {"offsets": offsets}, "")
            continue
        facts = [group.group_type, group.state, f"coordinator {group.coordinator}"]
        facts += [f"assignor {group.assignor}"] if group.assignor else []
        facts += [f"epoch {group.epoch}"] if group.epoch is not None else []
        facts += [f"{len(group.members)} members"]
        print(f"{group.group_id}  {'  '.join(facts)}")
        out.table(offsets, columns)
    _end_with(found.errors)


def _end_with(errors: dict[str, Any]) -> None:
    for error in errors.values():
        fail(str(error))
    if errors:
        raise SystemExit(FAILED)


def _summary(group: GroupDescription) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": len(group.members),
    }


def _offsets(admin: AdminClient, group: GroupDescription) -> list[dict[str, Any]]:
    """The committed offset or assignment of each partition, with the lag against the high
    watermark.
    """
    committed = admin.list_group_offsets(group.group_id, raise_errors=False)
    owners = {tp: member for member in group.members for tp in member.assignment}
    partitions = sorted({*committed, *owners})
    ends = admin.list_offsets(dict.fromkeys(partitions, "latest"), raise_errors=False)
    rows = []
    for tp in partitions:
        offset = committed[tp].offset if tp in committed else None
        end = ends[tp].offset if tp in ends else None
        owner = owners.get(tp)
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": offset,
                "end_offset": end,
                "lag": None if offset is None or end is None else max(end - offset, 0),
                "metadata": committed[tp].metadata if tp in committed else None,
                "member_id": owner.member_id if owner else None,
                "client_id": owner.client_id if owner else None,
                "host": owner.host if owner else None,
            }
        )
    return rows


@admin_command(app, "members", "kstore group members billing")
def members(
    admin: AdminClient,
    out: Output,
    group: Group,
    remove: Annotated[
        list[str] | None,
        typer.Option(metavar="MEMBER_ID", help="Remove this member; may be repeated."),
    ] = None,
    remove_instance: Annotated[
        list[str] | None, typer.Option(metavar="INSTANCE_ID", help="Remove this static member.")
    ] = None,
    remove_all: Annotated[bool, typer.Option("--remove-all", help="Remove all members.")] = False,
) -> None:
    """Show the members of a group and their partitions, or remove members."""
    from kstore.clients.admin import GroupMember

    going = [GroupMember(member_id) for member_id in remove or ()]
    going += [GroupMember("", instance_id) for instance_id in remove_instance or ()]
    if going or remove_all:
        results = admin.remove_members(
            group, None if remove_all else going, reason="kstore group members", raise_errors=False
        )
        out.report(
            results,
            lambda each, _: (
                {"removed": each.group_instance_id or each.member_id},
                f"removed {each.group_instance_id or each.member_id}",
            ),
        )
        return
    rows = []
    for member in admin.describe_groups([group])[group].members:
        tasks = [f"{task.subtopology}_{task.partition}" for task in member.active_tasks]
        parts = [f"{tp.topic}:{tp.partition}" for tp in member.assignment]
        targets = [f"{tp.topic}:{tp.partition}" for tp in member.target_assignment]
        rows.append(
            {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "rack": member.rack,
                "epoch": member.epoch,
                "topics": list(member.topics),
                "topic_regex": member.topic_regex,
                "assignment": parts or tasks,
                "target_assignment": targets,
            }
        )
    out.table(rows, ["member_id", "instance_id", "client_id", "host", "epoch", "assignment"])


@admin_command(app, "delete", "kstore group delete billing old-billing")
def delete(admin: AdminClient, out: Output, groups: Groups) -> None:
    """Delete groups without members, with their offsets."""
    results = admin.delete_groups(groups, raise_errors=False)
    out.report(results, lambda group, _: ({"deleted": group}, f"deleted {group}"))


@admin_command(app, "delete-offsets", "kstore group delete-offsets billing --topic orders:0,1")
def delete_offsets(
    admin: AdminClient,
    out: Output,
    group: Group,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            metavar="TOPIC[:PARTITIONS]",
            autocompletion=completion.topics,
            help="Delete the offsets of this topic, or of some partitions of it; may be repeated.",
        ),
    ],
) -> None:
    """Delete a group's committed offsets in topics that it no longer reads. A share group must have
    no members, and its offsets are deleted by whole topics.
    """
    parsed = list(map(parse_partitions, topic))
    if share_group.is_share(admin, group):
        out.report(
            share_group.delete_offsets(admin, group, parsed),
            lambda name, _: (
                {"group": group, "topic": name},
                f"deleted the offsets of {group} in {name}",
            ),
        )
        return
    partitions: list[TopicPartition] = []
    without = []
    for name, indexes in parsed:
        if indexes is None:
            committed = [tp for tp in admin.list_group_offsets(group) if tp.topic == name]
            partitions += committed
            if not committed:
                without.append(name)
        else:
            partitions += [TopicPartition(name, index) for index in indexes]
    if without:
        fail(f"group {group!r} has no committed offsets in {' or '.join(map(repr, without))}")
    if partitions:
        out.report(
            admin.delete_group_offsets(group, partitions, raise_errors=False),
            lambda tp, _: (
                {"group": group, "topic": tp.topic, "partition": tp.partition},
                f"deleted the offset of {group} in {tp.topic}:{tp.partition}",
            ),
        )
    if without:
        raise SystemExit(FAILED)
