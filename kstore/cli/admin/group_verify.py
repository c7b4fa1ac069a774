"""``kstore group verify``: check that the log still has the records that groups have processed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kstore.cli import completion
from kstore.cli.admin_command import admin_command
from kstore.cli.failure import FAILED, fail
from kstore.cli.output import Output

if TYPE_CHECKING:
    from kstore.clients import AdminClient, OffsetCheck, TopicPartition

__all__ = ["register", "verify"]

COLUMNS = ["group", "topic", "partition", "committed", "end_offset", "finding", "lost"]
Groups = Annotated[
    list[str],
    typer.Argument(metavar="GROUP", autocompletion=completion.groups, help="The groups' ids."),
]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    admin_command(app, "verify", "kstore group verify billing")(verify)


def verify(admin: AdminClient, out: Output, groups: Groups) -> None:
    """Compare committed offsets with the logs. The exit code is 1 if a group has processed records
    that no longer exist, an offset could not be checked because of an error, or a group does not
    exist.
    """
    failed = False
    rows = []
    for group in groups:
        found = admin.verify_group_offsets(group, raise_errors=False)
        rows += [_row(group, tp, check) for tp, check in found.items()]
        for error in found.errors.values():
            fail(f"group {group!r}: {error}")
        if not found and not found.errors:
            failed = not _exists(admin, group) or failed
        failed = failed or bool(found.errors) or any(row.is_wrong for row in found.values())
    out.table(rows, COLUMNS)
    if failed:
        raise SystemExit(FAILED)


def _exists(admin: AdminClient, group: str) -> bool:
    """Whether a group without committed offsets exists. Says which of the two it is."""
    from kstore.errors import GroupIdNotFoundError

    problem = admin.describe_groups([group], raise_errors=False).errors.get(group)
    if problem is None:
        fail(f"group {group!r} has no committed offsets yet")
    elif isinstance(problem, GroupIdNotFoundError):
        fail(f"there is no group {group!r}: `kstore group list` shows the groups")
    else:
        fail(f"group {group!r}: {problem}")
    return problem is None


def _row(group: str, tp: TopicPartition, check: OffsetCheck) -> dict[str, Any]:
    lost = check.lost
    first = None if lost is None or lost.first_offset < 0 else lost.first_offset
    last = None if lost is None else lost.last_offset
    return {
        "group": group,
        "topic": tp.topic,
        "partition": tp.partition,
        "committed": check.committed.offset,
        "leader_epoch": check.committed.leader_epoch,
        "end_offset": check.end_offset,
        "finding": check.finding.value,
        "lost": None if last is None else f"{'?' if first is None else first} to {last}",
        "first_lost_offset": first,
        "last_lost_offset": last,
        "current_leader_epoch": None if lost is None else lost.current_leader_epoch,
        "is_exact": None if lost is None else lost.is_exact,
    }
