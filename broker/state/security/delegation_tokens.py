"""Delegation tokens (KIP-48, KIP-373): who may create, renew, expire and see which, when they end,
and the form in which they are kept.

A token's secret is an HMAC of its id by `delegation.token.secret.key`. It is never kept: who has
the key derives it again. What is kept is signed with the same key, so that nobody without the key
can make a token, or change its owner or its end, by writing to the store.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kstore.broker.state.security.scram_credentials import MECHANISMS, ScramCredential, Upsertion
from kstore.errors import ErrorCode

__all__ = [
    "USER",
    "DelegationToken",
    "Lifetimes",
    "Principal",
    "TokenKeys",
    "TokenRefusal",
    "expire",
    "hmac_of",
    "is_user",
    "may_be_over",
    "new_token",
    "parse",
    "renew",
    "scram_credential",
    "text_of",
]

USER = "User"
"""The one type of principals that there may be among renewers."""
VERSION = 3
"""Of the node's form, as Kafka wrote it to ZooKeeper."""
ITERATIONS = 4096
"""The fewest that SCRAM allows: the secret is no password, it has 512 random bits."""
SALT_BYTES = 24
LAST_MS = 2**63 - 1


class Principal(NamedTuple):
    """Type and name: User and alice."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def of(cls, text: str) -> Principal:
        """The principal that `str` wrote; ValueError."""
        kind, colon, name = text.partition(":")
        if not colon or not kind:
            raise ValueError(f"{text[:100]!r} is no principal")
        return cls(kind, name)


class DelegationToken(NamedTuple):
    """What is known of a token. Times are milliseconds since 1970."""

    token_id: str
    owner: Principal
    """As whom its bearer acts."""
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    """It is never valid for longer."""

    def may_renew(self, principal: Principal) -> bool:
        """Whether the principal may put off its end, or end it."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: Principal) -> bool:
        """Whether it is the principal's: as owner, requester or renewer."""
        return self.may_renew(principal) or principal == self.requester

    def is_over(self, now_ms: int) -> bool:
        """Whether it is valid no more."""
        return min(self.max_ms, self.expires_ms) < now_ms


class Lifetimes(NamedTuple):
    """delegation.token.max.lifetime.ms and delegation.token.expiry.time.ms."""

    max_ms: int
    renewal_ms: int


def is_user(principal: Principal) -> bool:
    """Whether the principal may be a renewer, by its type."""
    return principal.kind == USER


class TokenKeys(NamedTuple):
    """What a login with a token needs: the token, and its secret as SCRAM keeps passwords."""

    token: DelegationToken
    credential: ScramCredential


class TokenRefusal(NamedTuple):
    """Why a token is not changed."""

    code: int


def new_token(
    token_id: str,
    owner: Principal,
    requester: Principal,
    renewers: Sequence[Principal],
    now_ms: int,
    asked_ms: int,
    lifetimes: Lifetimes,
) -> DelegationToken | TokenRefusal:
    """A new token; ``asked_ms`` is how long it shall be renewable, 0 or less: as long as it can."""
    if not all(map(is_user, renewers)) or ":" in owner.kind or not owner.kind:
        return TokenRefusal(ErrorCode.INVALID_PRINCIPAL_TYPE)
    life_ms = min(lifetimes.max_ms, asked_ms) if asked_ms > 0 else lifetimes.max_ms
    max_ms = min(now_ms + life_ms, LAST_MS)
    expires_ms = min(max_ms, now_ms + lifetimes.renewal_ms)
    return DelegationToken(
        token_id, owner, requester, tuple(renewers), now_ms, expires_ms, max_ms
    )  # fmt: skip


def renew(
    token: DelegationToken, principal: Principal, now_ms: int, asked_ms: int, lifetimes: Lifetimes
) -> DelegationToken | TokenRefusal:
    """The token with a later end; ``asked_ms`` from now, 0 or less: as late as it can be."""
    if token.is_over(now_ms):
        return TokenRefusal(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    if not token.may_renew(principal):
        return TokenRefusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    life_ms = min(lifetimes.renewal_ms, asked_ms) if asked_ms > 0 else lifetimes.renewal_ms
    return token._replace(expires_ms=min(token.max_ms, now_ms + life_ms))


def expire(
    token: DelegationToken, principal: Principal, now_ms: int, asked_ms: int
) -> DelegationToken | TokenRefusal:
    """The token with an end ``asked_ms`` from now; if that is negative it ends now, and is to be
    removed.
    """
    if not token.may_renew(principal):
        return TokenRefusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    if asked_ms < 0:
        return token._replace(expires_ms=now_ms)
    if token.is_over(now_ms):
        return TokenRefusal(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return token._replace(expires_ms=min(token.max_ms, now_ms + asked_ms))


# ---- the secret ----


def hmac_of(key: bytes, token_id: str) -> bytes:
    """A token's secret, as Kafka derives it; 64 bytes."""
    return hmac.digest(key, token_id.encode(), "sha512")


def scram_credential(key: bytes, token_id: str, mechanism: str) -> ScramCredential:
    """What SCRAM needs of the secret: its password is the HMAC in base64. Takes milliseconds.

    The salt is derived, too: so all brokers have the same.
    """
    known = next(each for each in MECHANISMS.values() if each.name == mechanism)
    salt = hmac.digest(_own_key(key, b"salt"), f"{mechanism} {token_id}".encode(), "sha256")
    salt = salt[:SALT_BYTES]
    password = base64.b64encode(hmac_of(key, token_id))
    salted = hashlib.pbkdf2_hmac(known.digest, password, salt, ITERATIONS)
    return ScramCredential.derive(Upsertion(token_id, known.number, ITERATIONS, salt, salted))


def _own_key(key: bytes, purpose: bytes) -> bytes:
    return hmac.digest(key, b"kstore delegation token " + purpose, "sha256")


# ---- the form in which it is kept ----


def text_of(token: DelegationToken, key: bytes) -> bytes:
    """Kafka's ZooKeeper-era JSON, signed."""
    fields: dict[str, Any] = {
        "version": VERSION,
        "owner": str(token.owner),
        "tokenRequester": str(token.requester),
        "renewers": [str(each) for each in token.renewers],
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expires_ms,
        "tokenId": token.token_id,
    }
    return _json(fields | {"signature": _signature(fields, key)})


def parse(token_id: str, data: bytes, key: bytes) -> DelegationToken:
    """The token that `text_of` wrote; ValueError where it is none, or not of this key."""
    try:
        fields = json.loads(data)
        signature = fields.pop("signature", "")
        token = DelegationToken(
            fields["tokenId"],
            Principal.of(fields["owner"]),
            Principal.of(fields["tokenRequester"]),
            tuple(map(Principal.of, fields["renewers"])),
            int(fields["issueTimestamp"]),
            int(fields["expiryTimestamp"]),
            int(fields["maxTimestamp"]),
        )
    except (KeyError, TypeError, AttributeError) as problem:
        raise ValueError(f"it has not the form of a token ({problem!r})") from None
    signed = hmac.compare_digest(str(signature).encode(), _signature(fields, key).encode())
    if not signed or token.token_id != token_id:
        raise ValueError("it was not written with this broker's delegation.token.secret.key")
    return token


def may_be_over(data: bytes, now_ms: int) -> bool:
    """Whether what is kept says that the token's time is over, whoever has written it."""
    try:
        fields = json.loads(data)
        return min(int(fields["expiryTimestamp"]), int(fields["maxTimestamp"])) < now_ms
    except (ValueError, KeyError, TypeError):
        return False


def _signature(fields: Mapping[str, Any], key: bytes) -> str:
    return hmac.digest(_own_key(key, b"node"), _json(fields), "sha256").hex()


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
