"""SCRAM credentials of users (KIP-554). Passwords are salted and hashed here; they are
never sent.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from kstore.clients.admin.routing import AdminBase, AnyBroker, Controller, Results, item_error
from kstore.errors import KafkaError
from kstore.items import Items, items_of
from kstore.protocol.security.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

__all__ = [
    "CredentialsAdmin",
    "ScramCredential",
    "ScramDeletion",
    "ScramMechanism",
    "ScramUpsertion",
]

ScramMechanism: TypeAlias = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS: dict[ScramMechanism, int] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
NAMES = {number: name for name, number in MECHANISMS.items()}
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SALT_BYTES = 24


class ScramCredential(NamedTuple):
    """The public part of a credential: its mechanism and its number of iterations."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A credential to set. The default salt is random."""

    user: str
    mechanism: ScramMechanism
    password: bytes = field(repr=False)
    iterations: int = 4096
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A credential to remove."""

    user: str
    mechanism: ScramMechanism


class CredentialsAdmin(AdminBase):
    """Requests about SCRAM credentials."""

    async def describe_scram_credentials(
        self, users: Items[str] | None = None, *, raise_errors: bool = True
    ) -> Results[str, list[ScramCredential]]:
        """The credentials of these users (None: of all users that have any)."""
        wanted = None
        if users is not None:
            names = items_of("users", users, str, "user names")
            wanted = [UserName(name=user) for user in names]
        errors: dict[str, KafkaError] = {}

        async def ask(node_id: int) -> dict[str, list[ScramCredential]] | KafkaError:
            request = DescribeUserScramCredentialsRequest(users=wanted)
            answer = await self._ask(node_id, request, DescribeUserScramCredentialsResponse)
            whole = item_error("SCRAM credentials", answer.error_code, answer.error_message)
            if whole is not None:
                return whole
            found: dict[str, list[ScramCredential]] = {}
            errors.clear()
            for row in answer.results:
                error = item_error(f"user {row.user!r}", row.error_code, row.error_message)
                if error is not None:
                    errors[row.user] = error
                    continue
                found[row.user] = [
                    ScramCredential(NAMES[info.mechanism], info.iterations)
                    for info in row.credential_infos
                    if info.mechanism in NAMES
                ]
            return found

        results = Results(await self._one(AnyBroker(self._cluster), ask), errors)
        if raise_errors:
            results.raise_first()
        return results

    async def alter_scram_credentials(
        self, changes: Items[ScramUpsertion | ScramDeletion], *, raise_errors: bool = True
    ) -> Results[str, None]:
        """Set and remove credentials. The outcome is per user."""
        by_user: dict[str, list[ScramUpsertion | ScramDeletion]] = {}
        kinds = (ScramUpsertion, ScramDeletion)
        for change in items_of("changes", changes, kinds, "ScramUpsertion and ScramDeletion"):
            by_user.setdefault(change.user, []).append(change)
        upserts = {
            user: [_upsertion(c) for c in rows if isinstance(c, ScramUpsertion)]
            for user, rows in by_user.items()
        }

        async def ask(node_id: int, users: list[str]) -> dict[str, KafkaError | None]:
            request = AlterUserScramCredentialsRequest(
                deletions=[
                    ScramCredentialDeletion(name=user, mechanism=MECHANISMS[change.mechanism])
                    for user in users
                    for change in by_user[user]
                    if isinstance(change, ScramDeletion)
                ],
                upsertions=[row for user in users for row in upserts[user]],
            )
            answer = await self._ask(node_id, request, AlterUserScramCredentialsResponse)
            return {
                row.user: item_error(f"user {row.user!r}", row.error_code, row.error_message)
                for row in answer.results
            }

        route = Controller(self._cluster)
        return await self._each(by_user, route, ask, raise_errors=raise_errors)


def _upsertion(change: ScramUpsertion) -> ScramCredentialUpsertion:
    """Hash the password (Hi of RFC 5802), so that the broker never sees it."""
    salt = secrets.token_bytes(SALT_BYTES) if change.salt is None else change.salt
    salted = hashlib.pbkdf2_hmac(HASHES[change.mechanism], change.password, salt, change.iterations)
    return ScramCredentialUpsertion(
        name=change.user,
        mechanism=MECHANISMS[change.mechanism],
        iterations=change.iterations,
        salt=salt,
        salted_password=salted,
    )
