"""The rules for changes of users' SCRAM credentials (KIP-554), and the stored form of a credential.

A client sends salt, iterations and the salted password. Only the two keys that the broker needs are
stored; the password cannot be derived from them. Other files store credentials and authenticate.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from kstore.errors import ErrorCode

__all__ = ["MECHANISMS", "Deletion", "Mechanism", "ScramCredential", "Upsertion", "refusals"]

MAX_ITERATIONS = 16384


class Mechanism(NamedTuple):
    """A SCRAM mechanism: its number in the protocol, its name, its hash, and the minimum of
    iterations.
    """

    number: int
    name: str
    digest: str
    min_iterations: int


MECHANISMS: dict[int, Mechanism] = {
    1: Mechanism(1, "SCRAM-SHA-256", "sha256", 4096),
    2: Mechanism(2, "SCRAM-SHA-512", "sha512", 4096),
}


class Deletion(NamedTuple):
    """Delete a user's credential of one mechanism."""

    user: str
    mechanism: int


class Upsertion(NamedTuple):
    """Set a user's credential of one mechanism."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class ScramCredential(NamedTuple):
    """A stored credential (RFC 5802)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def derive(cls, new: Upsertion) -> ScramCredential:
        """Derive the keys of a salted password."""
        digest = MECHANISMS[new.mechanism].digest
        client_key = hmac.digest(new.salted_password, b"Client Key", digest)
        server_key = hmac.digest(new.salted_password, b"Server Key", digest)
        stored_key = hashlib.new(digest, client_key).digest()
        return cls(new.salt, stored_key, server_key, new.iterations)

    def text(self) -> str:
        """The text form that Kafka wrote to ZooKeeper."""
        fields = {
            "salt": base64.b64encode(self.salt).decode(),
            "stored_key": base64.b64encode(self.stored_key).decode(),
            "server_key": base64.b64encode(self.server_key).decode(),
            "iterations": str(self.iterations),
        }
        return ",".join(f"{name}={value}" for name, value in fields.items())

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """Parse the text form. Raises ValueError if it is invalid."""
        fields = dict(part.split("=", 1) for part in text.split(","))
        salt, stored, server = (
            base64.b64decode(fields[name]) for name in ("salt", "stored_key", "server_key")
        )
        return cls(salt, stored, server, int(fields["iterations"]))


def refusals(
    deletions: Sequence[Deletion],
    upsertions: Sequence[Upsertion],
    known: Collection[tuple[str, int]],
) -> dict[str, tuple[int, str]]:
    """User to error code and message, for each user whose changes are refused: one invalid row
    prevents all changes of its user.
    """
    found: dict[str, tuple[int, str]] = {}
    rows: list[Deletion | Upsertion] = [*deletions, *upsertions]
    for row in rows:
        problem = _refuse_row(row)
        if problem is not None:
            found.setdefault(row.user, problem)
    counts = Counter(row.user for row in rows)
    for user, count in counts.items():
        if count > 1 and user:  # a row without a name already has that error
            words = f"User {user!r} is named {count} times: send one change of a user at a time."
            found[user] = (ErrorCode.DUPLICATE_RESOURCE, words)
    for gone in deletions:
        if gone.user not in found and (gone.user, gone.mechanism) not in known:
            mechanism = MECHANISMS[gone.mechanism].name
            words = f"User {gone.user!r} has no {mechanism} credential to delete."
            found[gone.user] = (ErrorCode.RESOURCE_NOT_FOUND, words)
    return found


def _refuse_row(row: Deletion | Upsertion) -> tuple[int, str] | None:
    if not row.user:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "A user without a name can't have credentials."
    mechanism = MECHANISMS.get(row.mechanism)
    if mechanism is None:
        known = " or ".join(f"{known.number} ({known.name})" for known in MECHANISMS.values())
        words = f"SCRAM mechanism {row.mechanism} is unknown: send {known}."
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, words
    if isinstance(row, Deletion):
        return None
    if not mechanism.min_iterations <= row.iterations <= MAX_ITERATIONS:
        allowed = f"{mechanism.min_iterations} to {MAX_ITERATIONS}"
        words = f"{mechanism.name} takes {allowed} iterations, not {row.iterations}."
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, words
    if not row.salted_password:
        return (
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"The salted password of user {row.user!r} is empty.",
        )
    return None
