"""The administration of SCRAM credentials (KIP-554). kstore.net has the mechanism."""

from __future__ import annotations

from kstore.protocol.schema import (
    Bytes,
    Int8,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "AlterUserScramCredentialsRequest",
    "AlterUserScramCredentialsResponse",
    "AlterUserScramCredentialsResult",
    "CredentialInfo",
    "DescribeUserScramCredentialsRequest",
    "DescribeUserScramCredentialsResponse",
    "DescribeUserScramCredentialsResult",
    "ScramCredentialDeletion",
    "ScramCredentialUpsertion",
    "UserName",
]


class UserName(Struct):
    """One entry of `users` in DescribeUserScramCredentialsRequest."""

    name: String = field("0+", default="")


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions="0", flexible="0+"):
    """Asks for users' mechanisms and iterations; never for secrets."""

    users: list[UserName] | None = field("0+", default=[], nullable="0+")


class CredentialInfo(Struct):
    """One entry of `credential_infos` in DescribeUserScramCredentialsResult."""

    mechanism: Int8 = field("0+", default=0)
    iterations: Int32 = field("0+", default=0)


class DescribeUserScramCredentialsResult(Struct):
    """One entry of `results` in DescribeUserScramCredentialsResponse."""

    user: String = field("0+", default="")
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")
    credential_infos: list[CredentialInfo] = field("0+", default=[])


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0", flexible="0+"):
    """The answer to DescribeUserScramCredentialsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = field("0+", default=[])


class ScramCredentialDeletion(Struct):
    """One entry of `deletions` in AlterUserScramCredentialsRequest."""

    name: String = field("0+", default="")
    mechanism: Int8 = field("0+", default=0)


class ScramCredentialUpsertion(Struct):
    """One entry of `upsertions` in AlterUserScramCredentialsRequest."""

    name: String = field("0+", default="")
    mechanism: Int8 = field("0+", default=0)
    iterations: Int32 = field("0+", default=0)
    salt: Bytes = field("0+", default=b"")
    salted_password: Bytes = field("0+", default=b"")


class AlterUserScramCredentialsRequest(Message, api_key=51, versions="0", flexible="0+"):
    """Deletes credentials and sets new ones."""

    deletions: list[ScramCredentialDeletion] = field("0+", default=[])
    upsertions: list[ScramCredentialUpsertion] = field("0+", default=[])


class AlterUserScramCredentialsResult(Struct):
    """One entry of `results` in AlterUserScramCredentialsResponse."""

    user: String = field("0+", default="")
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0", flexible="0+"):
    """The answer to AlterUserScramCredentialsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[AlterUserScramCredentialsResult] = field("0+", default=[])
