"""Checks of ACLs: rules that can never match a request, or never decide one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from ipaddress import ip_network

from kstore.acls import (
    ANY_HOST,
    ANY_NAME,
    ANY_PRINCIPAL,
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    Acl,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    operation_name,
)
from kstore.cli.doctor.cluster import ClusterView
from kstore.cli.doctor.findings import Check, Finding, Limits, Severity
from kstore.errors import SecurityDisabledError

__all__ = ["ACL_CHECKS", "why_never"]

_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_LITERAL, _PREFIXED = AclPatternType.LITERAL, AclPatternType.PREFIXED
_CLUSTER_ONLY = frozenset({AclOperation.REPLICATOR_WRITE})
_OPTIONS = {
    AclResourceType.TOPIC: "--topic",
    AclResourceType.GROUP: "--group",
    AclResourceType.TRANSACTIONAL_ID: "--transactional-id",
    AclResourceType.USER: "--user",
}


def acls(view: ClusterView, limits: Limits) -> Iterator[Finding]:
    """Each rule that has no effect; none without an authorizer."""
    try:
        rules = view.acls
    except SecurityDisabledError:
        return
    text = view.broker_value("super.users") or ""
    super_users = frozenset(each.strip() for each in text.split(";") if each.strip())
    for acl in rules:
        meaning = why_never(acl, rules, super_users)
        if meaning is not None:
            yield Finding(Severity.WARNING, f"ACL of {acl.principal}", str(acl), meaning, _fix(acl))


def why_never(acl: Acl, others: Sequence[Acl], super_users: frozenset[str]) -> str | None:
    """Why the rule never decides anything; None if it can."""
    return _name_problem(acl) or _asker_problem(acl, super_users) or _rule_problem(acl, others)


def _name_problem(acl: Acl) -> str | None:
    kind, name = acl.resource_type, acl.resource_name
    if kind == AclResourceType.CLUSTER and name != CLUSTER_NAME:
        return f"The only name of the CLUSTER resource is {CLUSTER_NAME}."
    if acl.pattern_type == _LITERAL and name != ANY_NAME and name.endswith("*"):
        return (
            f"The pattern is LITERAL, so it means a {kind.name} whose name ends with an asterisk. "
            f"The PREFIXED pattern {name[:-1]!r} means all names that begin so."
        )
    if acl.pattern_type == _PREFIXED and name == ANY_NAME:
        return "PREFIXED '*' means names that begin with an asterisk. LITERAL '*' means all."
    if kind == AclResourceType.TOPIC and name != ANY_NAME and not _TOPIC.fullmatch(name):
        return f"No topic can have this name: {name!r} has characters that are not allowed."
    return None


def _asker_problem(acl: Acl, super_users: frozenset[str]) -> str | None:
    kind, _, _ = acl.principal.partition(":")
    if kind != "User":
        return f"Every client's principal begins with 'User:'; no client is a {kind!r}."
    if acl.principal in super_users:
        return "The principal is in super.users, so it may do everything. ACLs do not apply to it."
    if acl.host != ANY_HOST and not _is_address(acl.host):
        return "The broker compares addresses. A host name matches no client."
    return None


def _rule_problem(acl: Acl, others: Sequence[Acl]) -> str | None:
    if acl.operation != AclOperation.ALL:
        known = SUPPORTED_OPERATIONS.get(acl.resource_type, frozenset())
        if acl.resource_type == AclResourceType.CLUSTER:
            known |= _CLUSTER_ONLY
        if acl.operation not in known:
            name = operation_name(acl.operation, acl.resource_type)
            return f"No request needs {name} on a {acl.resource_type.name}."
    if acl.permission == AclPermission.ALLOW:
        for other in others:
            if other.permission == AclPermission.DENY and _covers(other, acl):
                return f"A rule that denies the same always wins: {other}."
    return None


def _covers(wide: Acl, narrow: Acl) -> bool:
    """Whether the first applies to every request that the second applies to."""
    return (
        wide.resource_type == narrow.resource_type
        and wide.principal in (ANY_PRINCIPAL, narrow.principal)
        and wide.host in (ANY_HOST, narrow.host)
        and wide.operation in (AclOperation.ALL, narrow.operation)
        and _covers_name(wide, narrow)
    )


def _covers_name(wide: Acl, narrow: Acl) -> bool:
    if wide.pattern_type == _PREFIXED:
        is_all = narrow.pattern_type == _LITERAL and narrow.resource_name == ANY_NAME
        return not is_all and narrow.resource_name.startswith(wide.resource_name)
    if wide.resource_name == ANY_NAME:
        return True
    return narrow.pattern_type == _LITERAL and wide.resource_name == narrow.resource_name


def _is_address(host: str) -> bool:
    try:
        ip_network(host, strict=False)
    except ValueError:
        return False
    return True


def _fix(acl: Acl) -> str:
    """The command that removes this rule and no other."""
    option = _OPTIONS.get(acl.resource_type)
    resource = "--cluster" if option is None else f"{option} {shlex.quote(acl.resource_name)}"
    operation = operation_name(acl.operation, acl.resource_type).lower().replace("_", "-")
    return (
        f"kstore acl remove --principal {shlex.quote(acl.principal)} --operation {operation} "
        f"{resource} --pattern {acl.pattern_type.name.lower()} "
        f"--permission {acl.permission.name.lower()} --host {shlex.quote(acl.host)}"
    )


ACL_CHECKS: tuple[Check[ClusterView], ...] = (
    Check("acls", "ACLs that can never match", acls),
)  # fmt: skip
