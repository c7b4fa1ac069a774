"""DescribeClientQuotas and AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from kstore.protocol.schema import (
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "AlterClientQuotasRequest",
    "AlterClientQuotasRequestEntityData",
    "AlterClientQuotasRequestEntryData",
    "AlterClientQuotasResponse",
    "AlterClientQuotasResponseEntityData",
    "AlterClientQuotasResponseEntryData",
    "ComponentData",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
    "DescribeClientQuotasResponseEntityData",
    "DescribeClientQuotasResponseEntryData",
    "OpData",
    "ValueData",
]


class ComponentData(Struct):
    """One entry of `components` in DescribeClientQuotasRequest."""

    entity_type: String = field("0+", default="")
    match_type: Int8 = field("0+", default=0)
    match: String | None = field("0+", default="", nullable="0+")


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    """Asks for the quotas of entities that match."""

    components: list[ComponentData] = field("0+", default=[])
    strict: Bool = field("0+", default=False)


class DescribeClientQuotasResponseEntityData(Struct):
    """One entry of `entity` in DescribeClientQuotasResponseEntryData."""

    entity_type: String = field("0+", default="")
    entity_name: String | None = field("0+", default="", nullable="0+")


class ValueData(Struct):
    """One entry of `values` in DescribeClientQuotasResponseEntryData."""

    key: String = field("0+", default="")
    value: Float64 = field("0+", default=0.0)


class DescribeClientQuotasResponseEntryData(Struct):
    """One entry of `entries` in DescribeClientQuotasResponse."""

    entity: list[DescribeClientQuotasResponseEntityData] = field("0+", default=[])
    values: list[ValueData] = field("0+", default=[])


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    """The answer to DescribeClientQuotasRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")
    entries: list[DescribeClientQuotasResponseEntryData] | None = field(
        "0+", default=[], nullable="0+"
    )


class AlterClientQuotasRequestEntityData(Struct):
    """One entry of `entity` in AlterClientQuotasRequestEntryData."""

    entity_type: String = field("0+", default="")
    entity_name: String | None = field("0+", default="", nullable="0+")


class OpData(Struct):
    """One entry of `ops` in AlterClientQuotasRequestEntryData."""

    key: String = field("0+", default="")
    value: Float64 = field("0+", default=0.0)
    remove: Bool = field("0+", default=False)


class AlterClientQuotasRequestEntryData(Struct):
    """One entry of `entries` in AlterClientQuotasRequest."""

    entity: list[AlterClientQuotasRequestEntityData] = field("0+", default=[])
    ops: list[OpData] = field("0+", default=[])


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    """Sets and removes quotas of entities."""

    entries: list[AlterClientQuotasRequestEntryData] = field("0+", default=[])
    validate_only: Bool = field("0+", default=False)


class AlterClientQuotasResponseEntityData(Struct):
    """One entry of `entity` in AlterClientQuotasResponseEntryData."""

    entity_type: String = field("0+", default="")
    entity_name: String | None = field("0+", default="", nullable="0+")


class AlterClientQuotasResponseEntryData(Struct):
    """One entry of `entries` in AlterClientQuotasResponse."""

    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")
    entity: list[AlterClientQuotasResponseEntityData] = field("0+", default=[])


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    """The answer to AlterClientQuotasRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    entries: list[AlterClientQuotasResponseEntryData] = field("0+", default=[])
