"""Client quotas of users, client ids and IP addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from kstore.clients.admin.routing import AdminBase, AnyBroker, Controller, Results, item_error
from kstore.errors import KafkaError
from kstore.items import mapping_of
from kstore.protocol.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    OpData,
)

__all__ = ["QuotaEntity", "QuotasAdmin", "quota_entity"]

# (type, name) pairs in the order of their types: "client-id", "ip", "user". The name None is the
# default of the type. Created by quota_entity().
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
EXACT, DEFAULT, ANY_NAME = 0, 1, 2


def quota_entity(**names: str | None) -> QuotaEntity:
    """The entity to which quotas apply: user=, client_id= and ip=, each with a name, or None for
    the default of that kind.
    """
    return tuple(sorted((kind.replace("_", "-"), name) for kind, name in names.items()))


class QuotasAdmin(AdminBase):
    """Requests about client quotas."""

    async def describe_client_quotas(
        self, match: Mapping[str, str | None] | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Quotas by entity. `match` maps an entity type to a name, None (the default entity) or "*"
        (any name). With `strict`, entities with further types are omitted.
        """
        components = []
        if match is not None:
            mapping_of("match", match, "entity type -> name")
        for kind, name in (match or {}).items():
            how = ANY_NAME if name == "*" else DEFAULT if name is None else EXACT
            components.append(
                ComponentData(
                    entity_type=kind.replace("_", "-"),
                    match_type=how,
                    match=name if how == EXACT else None,
                )
            )

        async def ask(node_id: int) -> dict[QuotaEntity, dict[str, float]] | KafkaError:
            request = DescribeClientQuotasRequest(components=components, strict=strict)
            answer = await self._ask(node_id, request, DescribeClientQuotasResponse)
            found = {
                tuple(sorted((e.entity_type, e.entity_name) for e in row.entity)): {
                    value.key: value.value for value in row.values
                }
                for row in answer.entries or ()
            }
            return item_error("quotas", answer.error_code, answer.error_message) or found

        return await self._one(AnyBroker(self._cluster), ask)

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[QuotaEntity, None]:
        """Set quotas such as {"producer_byte_rate": 1e6} (bytes per second). None removes a
        quota.
        """
        for quotas in mapping_of("changes", changes, "quota_entity(...) -> quotas").values():
            mapping_of("quotas", quotas, "quota -> value")

        async def ask(
            node_id: int, wanted: list[QuotaEntity]
        ) -> dict[QuotaEntity, KafkaError | None]:
            entries = [
                AlterClientQuotasRequestEntryData(
                    entity=[
                        AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)
                        for kind, name in entity
                    ],
                    ops=[
                        OpData(key=key, value=value or 0.0, remove=value is None)
                        for key, value in changes[entity].items()
                    ],
                )
                for entity in wanted
            ]
            request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
            answer = await self._ask(node_id, request, AlterClientQuotasResponse)
            found: dict[QuotaEntity, KafkaError | None] = {}
            for row in answer.entries:
                entity = tuple(sorted((e.entity_type, e.entity_name) for e in row.entity))
                what = " ".join(f"{kind} {name!r}" for kind, name in entity)
                found[entity] = item_error(f"quotas of {what}", row.error_code, row.error_message)
            return found

        route = Controller(self._cluster)
        return await self._each(changes, route, ask, raise_errors=raise_errors)
