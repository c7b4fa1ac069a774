"""Delegation tokens (KIP-48, KIP-373): who may create, renew, expire and describe them, and when
they expire. token_nodes.py has the stored form.

A token's secret is an HMAC of its id with `delegation.token.secret.key`. It is not stored, but
derived again with the key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import NamedTuple

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
    "new_token",
    "own_key",
    "renew",
    "scram_credential",
]

USER = "User"
"""The only type of principal allowed as renewer."""
ITERATIONS = 4096
"""The minimum of SCRAM. This is enough, since the secret has 512 random bits."""
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
        """Parse a principal. Raises ValueError."""
        kind, colon, name = text.partition(":")
        if not colon or not kind:
            raise ValueError(f"{text[:100]!r} is not a principal")
        return cls(kind, name)


class DelegationToken(NamedTuple):
    """A token. Times are milliseconds since 1970."""

    token_id: str
    owner: Principal
    """The principal of clients that use it."""
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    """The end of its maximum lifetime."""

    def may_renew(self, principal: Principal) -> bool:
        """Whether the principal may renew or expire the token."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: Principal) -> bool:
        """Whether the principal is the token's owner, requester or renewer."""
        return self.may_renew(principal) or principal == self.requester

    def is_over(self, now_ms: int) -> bool:
        """Whether it has expired."""
        return min(self.max_ms, self.expires_ms) < now_ms


class Lifetimes(NamedTuple):
    """delegation.token.max.lifetime.ms and delegation.token.expiry.time.ms."""

    max_ms: int
    renewal_ms: int


def is_user(principal: Principal) -> bool:
    """Whether the principal's type is allowed for renewers."""
    return principal.kind == USER


class TokenKeys(NamedTuple):
    """The data for a login with a token: the token, and its secret as a SCRAM credential."""

    token: DelegationToken
    credential: ScramCredential


class TokenRefusal(NamedTuple):
    """The refusal of a change."""

    code: int


def new_token(
    token_id: str,
    owner: Principal,
    requester: Principal,
    renewers: Sequence[Principal],
    now_ms: int,
    requested_ms: int,
    lifetimes: Lifetimes,
) -> DelegationToken | TokenRefusal:
    """A new token. ``requested_ms`` is its requested maximum lifetime; 0 or less means the largest
    allowed.
    """
    if not all(map(is_user, renewers)) or ":" in owner.kind or not owner.kind:
        return TokenRefusal(ErrorCode.INVALID_PRINCIPAL_TYPE)
    life_ms = min(lifetimes.max_ms, requested_ms) if requested_ms > 0 else lifetimes.max_ms
    max_ms = min(now_ms + life_ms, LAST_MS)
    expires_ms = min(max_ms, now_ms + lifetimes.renewal_ms)
    return DelegationToken(
        token_id, owner, requester, tuple(renewers), now_ms, expires_ms, max_ms
    )  # fmt: skip


def renew(
    token: DelegationToken,
    principal: Principal,
    now_ms: int,
    requested_ms: int,
    lifetimes: Lifetimes,
) -> DelegationToken | TokenRefusal:
    """The token with a later expiry time: ``requested_ms`` from now; 0 or less means the latest
    allowed.
    """
    if token.is_over(now_ms):
        return TokenRefusal(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    if not token.may_renew(principal):
        return TokenRefusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    life_ms = min(lifetimes.renewal_ms, requested_ms) if requested_ms > 0 else lifetimes.renewal_ms
    return token._replace(expires_ms=min(token.max_ms, now_ms + life_ms))


def expire(
    token: DelegationToken, principal: Principal, now_ms: int, requested_ms: int
) -> DelegationToken | TokenRefusal:
    """The token with an expiry time ``requested_ms`` from now. If that is negative, it expires now
    and must be deleted.
    """
    if not token.may_renew(principal):
        return TokenRefusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    if requested_ms < 0:
        return token._replace(expires_ms=now_ms)
    if token.is_over(now_ms):
        return TokenRefusal(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return token._replace(expires_ms=min(token.max_ms, now_ms + requested_ms))


# ---- the secret ----


def hmac_of(key: bytes, token_id: str) -> bytes:
    """A token's secret of 64 bytes, derived as in Kafka."""
    return hmac.digest(key, token_id.encode(), "sha512")


def scram_credential(key: bytes, token_id: str, mechanism: str) -> ScramCredential:
    """The SCRAM credential of the secret: the password is the HMAC in base64. Takes milliseconds.

    The salt is derived, too, so all brokers have the same credential.
    """
    known = next(each for each in MECHANISMS.values() if each.name == mechanism)
    salt = hmac.digest(own_key(key, b"salt"), f"{mechanism} {token_id}".encode(), "sha256")
    salt = salt[:SALT_BYTES]
    password = base64.b64encode(hmac_of(key, token_id))
    salted = hashlib.pbkdf2_hmac(known.digest, password, salt, ITERATIONS)
    return ScramCredential.derive(Upsertion(token_id, known.number, ITERATIONS, salt, salted))


def own_key(key: bytes, purpose: bytes) -> bytes:
    """A key of 32 bytes for one purpose only, derived from `delegation.token.secret.key`."""
    return hmac.digest(key, b"kstore delegation token " + purpose, "sha256")
