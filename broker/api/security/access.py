"""Authorization checks for handlers.

Without an authorizer everything is allowed. Handlers know which rights an API requires.
state/security/authorizer.py evaluates the ACLs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from kstore.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    AclResourceType,
    mask_of,
)

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.state.security.authorizer import Authorizer

__all__ = [
    "HasAuthorizer", "allowed", "allowed_any", "allowed_cluster", "note_denied", "operations_mask",
    "permitted",
]  # fmt: skip

ALL_OPERATIONS = {kind: mask_of(operations) for kind, operations in SUPPORTED_OPERATIONS.items()}


class HasAuthorizer(Protocol):
    """The part of a broker that checks rights."""

    @property
    def authorizer(self) -> Authorizer | None:
        """Checks rights. None: everything is allowed."""


def allowed(
    broker: HasAuthorizer,
    ctx: RequestContext,
    operation: AclOperation,
    resource_type: AclResourceType,
    name: str,
    *,
    quiet: bool = False,
) -> bool:
    """Whether the sender may do the operation on the named resource. ``quiet``: a denial is not
    logged, because it only hides a row, or another right is enough.
    """
    authorizer = broker.authorizer
    if authorizer is None:
        return True
    if authorizer.authorize(ctx.principal, ctx.client_host, operation, resource_type, name):
        return True
    if not quiet:
        note_denied(broker, ctx, operation, resource_type, name)
    return False


def allowed_cluster(
    broker: HasAuthorizer, ctx: RequestContext, operation: AclOperation, *, quiet: bool = False
) -> bool:
    """Whether the sender may do the operation on the cluster. ``quiet`` as in `allowed`."""
    return allowed(broker, ctx, operation, AclResourceType.CLUSTER, CLUSTER_NAME, quiet=quiet)


def note_denied(
    broker: HasAuthorizer,
    ctx: RequestContext,
    operation: AclOperation,
    resource_type: AclResourceType,
    name: str,
) -> None:
    """Log a denial (runtime/security/audit_log.py)."""
    assert broker.authorizer is not None
    broker.authorizer.on_denied(
        ctx.principal, ctx.client_host, operation, resource_type, name, ctx.api_key
    )


def allowed_any(
    broker: HasAuthorizer,
    ctx: RequestContext,
    operation: AclOperation,
    resource_type: AclResourceType,
) -> bool:
    """Whether the sender may do the operation on at least one possible resource of this type
    (KIP-679).
    """
    authorizer = broker.authorizer
    return authorizer is None or authorizer.authorize_by_type(
        ctx.principal, ctx.client_host, operation, resource_type
    )


def permitted(
    broker: HasAuthorizer,
    ctx: RequestContext,
    operation: AclOperation,
    resource_type: AclResourceType,
    names: Iterable[str],
    *,
    quiet: bool = False,
) -> set[str]:
    """The names on which the sender may do the operation. ``quiet`` as in `allowed`."""
    return {
        name for name in names if allowed(broker, ctx, operation, resource_type, name, quiet=quiet)
    }


def operations_mask(
    broker: HasAuthorizer, ctx: RequestContext, resource_type: AclResourceType, name: str
) -> int:
    """Bit field of the operations that the sender may do on the resource (KIP-430)."""
    if broker.authorizer is None:
        return ALL_OPERATIONS[resource_type]
    rights = broker.authorizer.rights(ctx.principal, ctx.client_host)
    return rights.mask(resource_type, name) & ALL_OPERATIONS[resource_type]
