"""Delegation tokens (KIP-48): create, renew, expire, describe."""

from __future__ import annotations

from kstore.protocol.schema import (
    Bytes,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "CreatableRenewers",
    "CreateDelegationTokenRequest",
    "CreateDelegationTokenResponse",
    "DescribeDelegationTokenOwner",
    "DescribeDelegationTokenRequest",
    "DescribeDelegationTokenResponse",
    "DescribedDelegationToken",
    "DescribedDelegationTokenRenewer",
    "ExpireDelegationTokenRequest",
    "ExpireDelegationTokenResponse",
    "RenewDelegationTokenRequest",
    "RenewDelegationTokenResponse",
]


class CreatableRenewers(Struct):
    """One entry of `renewers` in CreateDelegationTokenRequest."""

    principal_type: String = field("0+", default="")
    principal_name: String = field("0+", default="")


class CreateDelegationTokenRequest(Message, api_key=38, versions="1-3", flexible="2+"):
    """Asks for a token in the name of its owner (KIP-373: of another owner)."""

    owner_principal_type: String | None = field("3+", default="", nullable="3+")
    owner_principal_name: String | None = field("3+", default="", nullable="3+")
    renewers: list[CreatableRenewers] = field("0+", default=[])
    max_lifetime_ms: Int64 = field("0+", default=0)


class CreateDelegationTokenResponse(Message, api_key=38, versions="1-3", flexible="2+"):
    """The answer to CreateDelegationTokenRequest."""

    error_code: Int16 = field("0+", default=0)
    principal_type: String = field("0+", default="")
    principal_name: String = field("0+", default="")
    token_requester_principal_type: String = field("3+", default="")
    token_requester_principal_name: String = field("3+", default="")
    issue_timestamp_ms: Int64 = field("0+", default=0)
    expiry_timestamp_ms: Int64 = field("0+", default=0)
    max_timestamp_ms: Int64 = field("0+", default=0)
    token_id: String = field("0+", default="")
    hmac: Bytes = field("0+", default=b"")
    throttle_time_ms: Int32 = field("0+", default=0)


class RenewDelegationTokenRequest(Message, api_key=39, versions="1-2", flexible="2+"):
    """Extends a token's lifetime."""

    hmac: Bytes = field("0+", default=b"")
    renew_period_ms: Int64 = field("0+", default=0)


class RenewDelegationTokenResponse(Message, api_key=39, versions="1-2", flexible="2+"):
    """The answer to RenewDelegationTokenRequest."""

    error_code: Int16 = field("0+", default=0)
    expiry_timestamp_ms: Int64 = field("0+", default=0)
    throttle_time_ms: Int32 = field("0+", default=0)


class ExpireDelegationTokenRequest(Message, api_key=40, versions="1-2", flexible="2+"):
    """Sets a token's expiry time; negative: expire now."""

    hmac: Bytes = field("0+", default=b"")
    expiry_time_period_ms: Int64 = field("0+", default=0)


class ExpireDelegationTokenResponse(Message, api_key=40, versions="1-2", flexible="2+"):
    """The answer to ExpireDelegationTokenRequest."""

    error_code: Int16 = field("0+", default=0)
    expiry_timestamp_ms: Int64 = field("0+", default=0)
    throttle_time_ms: Int32 = field("0+", default=0)


class DescribeDelegationTokenOwner(Struct):
    """One entry of `owners` in DescribeDelegationTokenRequest."""

    principal_type: String = field("0+", default="")
    principal_name: String = field("0+", default="")


class DescribeDelegationTokenRequest(Message, api_key=41, versions="1-3", flexible="2+"):
    """Asks for the tokens of owners; null means all."""

    owners: list[DescribeDelegationTokenOwner] | None = field("0+", default=[], nullable="0+")


class DescribedDelegationTokenRenewer(Struct):
    """One entry of `renewers` in DescribedDelegationToken."""

    principal_type: String = field("0+", default="")
    principal_name: String = field("0+", default="")


class DescribedDelegationToken(Struct):
    """One entry of `tokens` in DescribeDelegationTokenResponse."""

    principal_type: String = field("0+", default="")
    principal_name: String = field("0+", default="")
    token_requester_principal_type: String = field("3+", default="")
    token_requester_principal_name: String = field("3+", default="")
    issue_timestamp: Int64 = field("0+", default=0)
    expiry_timestamp: Int64 = field("0+", default=0)
    max_timestamp: Int64 = field("0+", default=0)
    token_id: String = field("0+", default="")
    hmac: Bytes = field("0+", default=b"")
    renewers: list[DescribedDelegationTokenRenewer] = field("0+", default=[])


class DescribeDelegationTokenResponse(Message, api_key=41, versions="1-3", flexible="2+"):
    """The answer to DescribeDelegationTokenRequest."""

    error_code: Int16 = field("0+", default=0)
    tokens: list[DescribedDelegationToken] = field("0+", default=[])
    throttle_time_ms: Int32 = field("0+", default=0)
