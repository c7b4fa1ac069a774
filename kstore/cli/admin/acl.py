"""``kstore acl``: ACLs of a broker that has an authorizer."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from kstore.cli import completion
from kstore.cli.admin_command import admin_command
from kstore.cli.output import Output

if TYPE_CHECKING:
    from kstore.clients import AdminClient
    from kstore.clients.admin import Acl, AclOperation, AclPatternType, AclResourceType

__all__ = ["app"]

app = typer.Typer(help="List, add and remove ACLs.", no_args_is_help=True)
E = TypeVar("E", bound=IntEnum)

TopicName = Annotated[
    str | None,
    typer.Option(
        "--topic",
        autocompletion=completion.topics,
        help="The name of a topic; '*': all topics.",
    ),
]
GroupName = Annotated[
    str | None,
    typer.Option(
        "--group",
        autocompletion=completion.groups,
        help="The id of a group; '*': all groups.",
    ),
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
TransactionalId = Annotated[str | None, typer.Option(help="A transactional id; '*': all of them.")]
UserName = Annotated[
    str | None, typer.Option("--user", help="A user, for ACLs on the user's delegation tokens.")
]
Principal = Annotated[
    str | None,
    typer.Option(metavar="TYPE:NAME", help="The principal, such as User:alice; 'User:*': all."),
]
Operation = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        help="read, write, create, describe, alter and so on, or all; may be repeated.",
    ),
]
Pattern = Annotated[
    str | None, typer.Option(help="literal or prefixed; for list and remove also any and match.")
]
Host = Annotated[str | None, typer.Option(help="The client's address; by default any address.")]
Permission = Annotated[
    str | None, typer.Option("--permission", help="allow or deny; by default both.")
]


def _resource(
    topic: str | None, group: str | None, cluster: bool, transactional_id: str | None,
    user: str | None,
) -> tuple[AclResourceType, str] | None:  # fmt: skip
    """The resource that the options name; None if they name none."""
    from kstore.clients.admin import AclResourceType

    named = {
        AclResourceType.TOPIC: topic,
        AclResourceType.GROUP: group,
        AclResourceType.CLUSTER: "kafka-cluster" if cluster else None,
        AclResourceType.TRANSACTIONAL_ID: transactional_id,
        AclResourceType.USER: user,
    }
    found = [(kind, name) for kind, name in named.items() if name is not None]
    if len(found) > 1:
        raise typer.BadParameter(
            "use one of --topic, --group, --cluster, --transactional-id and --user"
        )
    return found[0] if found else None


def _word(kind: type[E], text: str, what: str) -> E:
    """The member of an enumeration for a word of the command line."""
    known = {
        name.lower().replace("_", "-"): each
        for name, each in kind.__members__.items()  # REPLICATOR_WRITE is a second name of one
        if each.name != "UNKNOWN"
    }
    found = known.get(text.lower().replace("_", "-"))
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a {what}; use one of {', '.join(known)}")
    return found


def _row(acl: Acl) -> dict[str, Any]:
    from kstore.acls import operation_name

    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": operation_name(acl.operation, acl.resource_type).lower().replace("_", "-"),
        "permission": acl.permission.name.lower(),
        "resource_type": acl.resource_type.name.lower().replace("_", "-"),
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name.lower(),
    }


@admin_command(app, "list", "kstore acl list --principal User:alice --topic orders --pattern match")
def list_acls(
    admin: AdminClient,
    out: Output,
    topic: TopicName = None,
    group: GroupName = None,
    cluster: Cluster = False,
    transactional_id: TransactionalId = None,
    user: UserName = None,
    principal: Principal = None,
    operation: Operation = None,
    pattern: Pattern = None,
    host: Host = None,
    permission: Permission = None,
) -> None:
    """List the ACLs, all or those that match."""
    resource = _resource(topic, group, cluster, transactional_id, user)
    filters = _filters(resource, principal, operation, pattern, host, permission)
    found = sorted({acl for each in filters for acl in admin.describe_acls(each)}, key=str)
    columns = ["principal", "host", "operation", "permission", "resource_type", "resource_name",
               "pattern_type"]  # fmt: skip
    out.table([_row(acl) for acl in found], columns)


def _filters(
    resource: tuple[AclResourceType, str] | None, principal: str | None,
    operations: list[str] | None, pattern: str | None, host: str | None, permission: str | None,
) -> list[Any]:  # fmt: skip
    from kstore.clients.admin import (
        AclFilter,
        AclOperation,
        AclPatternType,
        AclPermission,
        AclResourceType,
    )

    kind, name = resource or (AclResourceType.ANY, None)
    words: list[str | None] = [*operations] if operations else [None]
    default: AclPatternType = AclPatternType.LITERAL if resource else AclPatternType.ANY
    return [
        AclFilter(
            kind,
            name,
            principal,
            AclOperation.ANY if each is None else _word(AclOperation, each, "operation"),
            AclPermission.ANY
            if permission is None
            else _word(AclPermission, permission, "permission"),
            host,
            default if pattern is None else _word(AclPatternType, pattern, "pattern type"),
        )
        for each in words
    ]


def _rights(
    resource: tuple[AclResourceType, str] | None, operations: list[str] | None
) -> list[tuple[tuple[AclResourceType, str], list[AclOperation]]]:
    """The ACLs that the options describe."""
    from kstore.clients.admin import AclOperation

    if resource is None:
        raise typer.BadParameter(
            "use one of --topic, --group, --cluster, --transactional-id and --user"
        )
    if not operations:
        raise typer.BadParameter("use one of --operation, --producer and --consumer")
    return [(resource, [_word(AclOperation, each, "operation") for each in operations])]


def _rights_of_client(
    consumer: bool, topic: str | None, group: str | None, transactional_id: str | None
) -> list[tuple[tuple[AclResourceType, str], list[AclOperation]]]:
    """The operations that kafka-acls allows a producer or a consumer."""
    from kstore.clients.admin import AclOperation, AclResourceType

    describe = AclOperation.DESCRIBE
    if consumer:
        if topic is None or group is None or transactional_id is not None:
            raise typer.BadParameter("--consumer needs --topic and --group, and no other resource")
        return [
            ((AclResourceType.TOPIC, topic), [AclOperation.READ, describe]),
            ((AclResourceType.GROUP, group), [AclOperation.READ]),
        ]
    if topic is None or group is not None:
        raise typer.BadParameter("--producer needs --topic; --transactional-id is optional")
    writes = [AclOperation.WRITE, describe]
    found = [((AclResourceType.TOPIC, topic), [*writes, AclOperation.CREATE])]
    if transactional_id is not None:
        found.append(((AclResourceType.TRANSACTIONAL_ID, transactional_id), writes))
    return found


@admin_command(app, "add", "kstore acl add --principal User:alice --operation read --topic orders")
def add(
    admin: AdminClient,
    out: Output,
    principal: Annotated[
        str,
        typer.Option(metavar="TYPE:NAME", help="The principal, such as User:alice; 'User:*': all."),
    ],
    operation: Annotated[
        list[str] | None,
        typer.Option(
            "--operation",
            help="read, write, create, describe, alter and so on, or all; may be repeated.",
        ),
    ] = None,
    producer: Annotated[
        bool, typer.Option("--producer", help="Everything that a producer needs, on --topic.")
    ] = False,
    consumer: Annotated[
        bool,
        typer.Option(
            "--consumer",
            help="Everything that a consumer needs, on --topic and --group.",
        ),
    ] = False,
    topic: TopicName = None,
    group: GroupName = None,
    cluster: Cluster = False,
    transactional_id: TransactionalId = None,
    user: UserName = None,
    pattern: Annotated[str, typer.Option(help="literal or prefixed.")] = "literal",
    host: Annotated[str, typer.Option(help="An address, or a network (10.0.0.0/8).")] = "*",
    deny: Annotated[bool, typer.Option("--deny", help="Deny instead of allow.")] = False,
) -> None:
    """Allow operations to a principal, or deny them with --deny."""
    from kstore.clients.admin import Acl, AclPatternType, AclPermission

    if producer or consumer:
        if operation or cluster or user or (producer and consumer):
            raise typer.BadParameter("use either --producer or --consumer, without --operation")
        rights = _rights_of_client(consumer, topic, group, transactional_id)
    else:
        rights = _rights(_resource(topic, group, cluster, transactional_id, user), operation)
    pattern_type = _word(AclPatternType, pattern, "pattern type")
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    acls = [
        Acl(*resource, principal, each, permission, host, pattern_type)
        for resource, operations in rights
        for each in operations
    ]
    results = admin.create_acls(acls, raise_errors=False)
    out.report(results, lambda acl, _: ({"added": _row(acl)}, f"added {acl}"))


@admin_command(app, "remove", "kstore acl remove --principal User:alice --topic orders")
def remove(
    admin: AdminClient,
    out: Output,
    topic: TopicName = None,
    group: GroupName = None,
    cluster: Cluster = False,
    transactional_id: TransactionalId = None,
    user: UserName = None,
    principal: Principal = None,
    operation: Operation = None,
    pattern: Pattern = None,
    host: Host = None,
    permission: Permission = None,
    everything: Annotated[bool, typer.Option("--all", help="Required to remove all ACLs.")] = False,
) -> None:
    """Remove the ACLs that match."""
    resource = _resource(topic, group, cluster, transactional_id, user)
    if not (resource or principal or operation or host or permission or pattern or everything):
        raise typer.BadParameter("specify which ACLs to remove, or use --all")
    filters = _filters(resource, principal, operation, pattern, host, permission)
    results = admin.delete_acls(filters, raise_errors=False)
    gone = sorted({acl for acls in results.values() for acl in acls}, key=str)
    for acl in gone:
        out.print({"removed": _row(acl)}, f"removed {acl}")
    results.clear()
    out.report(results, lambda _filter, _acls: ({}, ""))
