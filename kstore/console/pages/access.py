"""ACLs and users (SCRAM credentials)."""

from __future__ import annotations

from starlette.responses import Response

from kstore.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    operation_name,
)
from kstore.clients.admin import ScramDeletion, ScramUpsertion
from kstore.console.pages.page import Page, PageError, path, whole
from kstore.errors import KafkaError

__all__ = ["acls", "create_acl", "delete_acl", "delete_user", "set_user", "users"]

KINDS = ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "USER", "DELEGATION_TOKEN")
OPERATIONS = tuple(
    each.name for each in AclOperation if each > AclOperation.ANY and each.name
)  # fmt: skip
PATTERNS = ("LITERAL", "PREFIXED")
PERMISSIONS = ("ALLOW", "DENY")
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


async def acls(page: Page) -> Response:
    """GET /ui/acls."""
    wanted = page.text("q").lower()
    try:
        every, problem = await page.admin.describe_acls(), ""
    except KafkaError as error:
        every, problem = [], str(error)
    found = sorted(
        (each for each in every if wanted in str(each).lower()),
        key=lambda each: (each.resource_type, each.resource_name, each.principal, each.operation),
    )
    return page.render(
        "acls.html", title="ACLs", found=page.rows(found), q=page.text("q"), problem=problem,
        kinds=KINDS, operations=OPERATIONS, patterns=PATTERNS, permissions=PERMISSIONS,
        operation_name=operation_name,
    )  # fmt: skip


def _acl(page: Page) -> Acl:
    form = page.form
    try:
        return Acl(
            AclResourceType[form.get("kind", "")],
            form.get("name", "").strip() or ("kafka-cluster" if form["kind"] == "CLUSTER" else ""),
            form.get("principal", "").strip(),
            AclOperation[form.get("operation", "")],
            AclPermission[form.get("permission", "")],
            form.get("host", "").strip() or "*",
            AclPatternType[form.get("pattern", "")],
        )
    except KeyError as error:
        raise PageError(f"{error.args[0]!r} is not a valid value") from None


async def create_acl(page: Page) -> Response:
    """POST /ui/acls."""
    acl = _acl(page)
    if not acl.resource_name or not acl.principal:
        return page.failed("An ACL needs a principal and a resource name.", path("acls"))
    try:
        await page.admin.create_acls([acl])
    except KafkaError as error:
        return page.failed(str(error), path("acls"))
    return page.done(f"Added: {acl}", path("acls"))


async def delete_acl(page: Page) -> Response:
    """POST /ui/acls/delete: exactly one."""
    acl = _acl(page)
    exactly = AclFilter(
        acl.resource_type, acl.resource_name, acl.principal, acl.operation, acl.permission,
        acl.host, acl.pattern_type,
    )  # fmt: skip
    try:
        gone = await page.admin.delete_acls([exactly])
    except KafkaError as error:
        return page.failed(str(error), path("acls"))
    return page.done(f"{sum(map(len, gone.values()))} ACL removed: {acl}", path("acls"))


async def users(page: Page) -> Response:
    """GET /ui/users."""
    problem = ""
    try:
        found = dict(await page.admin.describe_scram_credentials(raise_errors=False))
    except KafkaError as error:
        found, problem = {}, str(error)
    wanted = page.text("q")
    names = sorted(name for name in found if wanted.lower() in name.lower())
    return page.render(
        "users.html", title="Users", found=page.rows(names), credentials=found, problem=problem,
        q=wanted, mechanisms=MECHANISMS,
    )  # fmt: skip


def _mechanism(page: Page) -> str:
    mechanism = page.form.get("mechanism", "")
    if mechanism not in MECHANISMS:
        raise PageError(f"{mechanism!r} is not one of {', '.join(MECHANISMS)}")
    return mechanism


async def set_user(page: Page) -> Response:
    """POST /ui/users: a new user, or a new password."""
    user, password = page.form.get("user", "").strip(), page.form.get("password", "")
    iterations = whole(page.form.get("iterations", ""), "iterations", 4096, 4096, 16384)
    if not user or not password:
        return page.failed("Enter a user and a password.", path("users"))
    mechanism = _mechanism(page)
    change = ScramUpsertion(user, mechanism, password.encode(), iterations)  # type: ignore[arg-type]
    try:
        await page.admin.alter_scram_credentials([change])
    except KafkaError as error:
        return page.failed(str(error), path("users"))
    return page.done(f"User {user} can log in with {mechanism}.", path("users"))


async def delete_user(page: Page) -> Response:
    """POST /ui/users/delete: one credential."""
    user, mechanism = page.form.get("user", ""), _mechanism(page)
    try:
        await page.admin.alter_scram_credentials([ScramDeletion(user, mechanism)])  # type: ignore[arg-type]
    except KafkaError as error:
        return page.failed(str(error), path("users"))
    return page.done(f"{mechanism} of user {user} was removed.", path("users"))
