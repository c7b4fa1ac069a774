"""DescribeClientQuotas 0-1 and AlterClientQuotas 0-1 (KIP-546): quotas of users, client ids and
addresses.

The rules are in state/quotas/client_quotas.py; runtime/quotas/client_throttles.py applies them.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kstore.broker.api import RequestContext
from kstore.broker.api.requests.turns import HasTurns, in_turns, sliced
from kstore.broker.coordination.store import StoreError
from kstore.broker.state.quotas.client_quotas import (
    Alteration,
    Entity,
    Filter,
    QuotaError,
    check_filter,
    entity_of,
    matches,
)
from kstore.broker.state.work import Work, each, each_work
from kstore.errors import ErrorCode
from kstore.protocol.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClientQuotasResponseEntityData,
    DescribeClientQuotasResponseEntryData,
    ValueData,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.quotas.client_quota_manager import ClientQuotaManager
    from kstore.broker.runtime.quotas.client_quotas import ClientQuotas

__all__ = ["QuotaParts", "handle_alter_client_quotas", "handle_describe_client_quotas"]


class QuotaParts(HasTurns, Protocol):
    """The parts of a broker that these handlers use."""

    @property
    def node(self) -> Node:
        """The thread that waits for the disk."""

    @property
    def quotas(self) -> Lazy[ClientQuotaManager]:
        """The quotas of clients."""


def handle_describe_client_quotas(
    broker: QuotaParts, request: DescribeClientQuotasRequest, ctx: RequestContext
) -> DescribeClientQuotasResponse | Awaitable[DescribeClientQuotasResponse]:
    """Return the quotas of the entities that match the filter."""
    components: list[Filter] = []
    try:
        for row in request.components:  # each entity is checked before the next one is created
            components.append(Filter(row.entity_type, row.match_type, row.match))
            check_filter(components)
    except QuotaError as problem:
        return DescribeClientQuotasResponse(
            error_code=problem.code, error_message=problem.message, entries=None
        )
    try:
        known = broker.quotas().stored.quotas
    except StoreError as problem:
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.REQUEST_TIMED_OUT,
            error_message=f"The coordination store did not answer: {problem}",
            entries=None,
        )
    return sliced(broker, ctx, _described(dict(known), components, strict=request.strict))


def _described(
    known: Mapping[Entity, Mapping[str, float]], components: Sequence[Filter], *, strict: bool
) -> Work[DescribeClientQuotasResponse]:
    def row(
        item: tuple[Entity, Mapping[str, float]],
    ) -> DescribeClientQuotasResponseEntryData | None:
        entity, quotas = item
        if not matches(entity, components, strict=strict):
            return None
        return DescribeClientQuotasResponseEntryData(
            entity=[
                DescribeClientQuotasResponseEntityData(entity_type=kind, entity_name=name)
                for kind, name in entity
            ],
            values=[ValueData(key=key, value=value) for key, value in quotas.items()],
        )

    rows = yield from each(row, known.items())
    return DescribeClientQuotasResponse(entries=[row for row in rows if row is not None])


async def handle_alter_client_quotas(
    broker: QuotaParts, request: AlterClientQuotasRequest, ctx: RequestContext
) -> AlterClientQuotasResponse:
    """Change the quotas of each entity. If an entity is named twice, the first change is made, and
    the response has an error.
    """
    quotas = broker.quotas().stored
    results: dict[Entity, tuple[int, str | None]] = {}

    def alter() -> None:
        for entry in request.entries:
            entity = entity_of((row.entity_type, row.entity_name) for row in entry.entity)
            if entity in results:
                words = f"{dict(entity)} is listed more than once; only the first is used."
                results[entity] = (ErrorCode.INVALID_REQUEST, words)
                continue
            changes = [Alteration(op.key, None if op.remove else op.value) for op in entry.ops]
            results[entity] = _alter(quotas, entity, changes, request.validate_only)

    await broker.node.run_blocking(alter)
    quotas.notify()

    def named(part: tuple[str, str | None]) -> AlterClientQuotasResponseEntityData:
        return AlterClientQuotasResponseEntityData(entity_type=part[0], entity_name=part[1])

    def entry(
        item: tuple[Entity, tuple[int, str | None]],
    ) -> Work[AlterClientQuotasResponseEntryData]:
        entity, (code, words) = item
        parts = yield from each(named, entity)
        return AlterClientQuotasResponseEntryData(
            error_code=code, error_message=words, entity=parts
        )

    entries = await in_turns(broker, ctx, each_work(entry, results.items()))
    return AlterClientQuotasResponse(entries=entries)


def _alter(
    quotas: ClientQuotas, entity: Entity, changes: list[Alteration], validate_only: bool
) -> tuple[int, str | None]:
    try:
        quotas.alter(entity, changes, _is_host, validate_only=validate_only)
    except QuotaError as problem:
        return problem.code, problem.message
    return ErrorCode.NONE, None


def _is_host(name: str) -> bool:
    """Whether the name is an address or can be resolved. May use DNS."""
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return False
    return True
