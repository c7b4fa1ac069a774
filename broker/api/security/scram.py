"""DescribeUserScramCredentials 0 and AlterUserScramCredentials 0 (KIP-554).

The coordination store has credentials in Kafka's form, in the same node as the user's quotas.
runtime/security/authentication.py uses them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from kstore.broker.api import RequestContext
from kstore.broker.api.requests.turns import HasTurns, in_turns
from kstore.broker.coordination.store import BadPathError, StoreError
from kstore.broker.runtime.metadata import entity_configs
from kstore.broker.runtime.security.scram_users import USERS, user_path
from kstore.broker.state.security.scram_credentials import (
    MECHANISMS,
    Deletion,
    ScramCredential,
    Upsertion,
    refusals,
)
from kstore.broker.state.work import each
from kstore.errors import ErrorCode
from kstore.protocol.security.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialUpsertion,
)

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.security.scram_users import ScramUsers
    from kstore.broker.runtime.security.security import Security

__all__ = [
    "ScramParts",
    "handle_alter_user_scram_credentials",
    "handle_describe_user_scram_credentials",
]


class ScramParts(HasTurns, Protocol):
    """The parts of a broker that these handlers use."""

    @property
    def node(self) -> Node:
        """The thread that waits for the disk."""

    @property
    def store(self) -> Store:
        """Stores the credentials."""

    @property
    def scram(self) -> Lazy[ScramUsers]:
        """The credentials in memory, if a user has logged in with one."""

    @property
    def security(self) -> Security | None:
        """Knows which connections use a credential."""


async def handle_describe_user_scram_credentials(
    broker: ScramParts, request: DescribeUserScramCredentialsRequest, ctx: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Return mechanisms and iterations of the named users, or of all users with a credential."""
    requested: Counter[str] = Counter()
    await in_turns(
        broker, ctx, each(lambda row: requested.update((row.name,)), request.users or ())
    )
    try:
        found = await broker.node.run_blocking(lambda: _credentials(broker.store, list(requested)))
    except StoreError as problem:
        return DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.REQUEST_TIMED_OUT,
            error_message=f"The coordination store did not answer: {problem}",
        )

    def result(user: str) -> DescribeUserScramCredentialsResult:
        row = DescribeUserScramCredentialsResult(user=user)
        if requested[user] > 1:
            row.error_code = ErrorCode.DUPLICATE_RESOURCE
            row.error_message = (
                f"User {user!r} is named {requested[user]} times: name every user once."
            )
        elif user not in found:
            row.error_code = ErrorCode.RESOURCE_NOT_FOUND
            row.error_message = f"User {user!r} has no SCRAM credential."
        else:
            row.credential_infos = found[user]
        return row

    results = await in_turns(broker, ctx, each(result, requested or found))
    return DescribeUserScramCredentialsResponse(results=results)


def _credentials(store: Store, users: list[str]) -> dict[str, list[CredentialInfo]]:
    """The credentials of these users, or of all. Users without a credential are left out."""
    paths = [(user, user_path(user)) for user in users if user]
    if not users:
        named = entity_configs.children(store, USERS)
        paths = [(user, path) for user, path in named if user is not None]
    found = {}
    for user, path in paths:
        config = entity_configs.read(store, path)
        infos = [
            CredentialInfo(
                mechanism=mechanism.number,
                iterations=ScramCredential.parse(config[mechanism.name]).iterations,
            )
            for mechanism in MECHANISMS.values()
            if mechanism.name in config
        ]
        if infos:
            found[user] = infos
    return found


async def handle_alter_user_scram_credentials(
    broker: ScramParts, request: AlterUserScramCredentialsRequest, ctx: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Change the credentials of users whose rows are all valid. The others get an error."""

    def upsertion(row: ScramCredentialUpsertion) -> Upsertion:
        salt, password = bytes(row.salt), bytes(row.salted_password)
        return Upsertion(row.name, row.mechanism, row.iterations, salt, password)

    removed = each(lambda row: Deletion(row.name, row.mechanism), request.deletions)
    deletions = await in_turns(broker, ctx, removed)
    upsertions = await in_turns(broker, ctx, each(upsertion, request.upsertions))
    users = [row.user for row in deletions] + [row.user for row in upsertions]
    scram = broker.scram.made

    def run() -> dict[str, tuple[int, str]]:
        try:
            return _alter(broker.store, deletions, upsertions)
        finally:
            if scram is not None and users:
                scram.reload({user_path(user) for user in users})

    problems = await broker.node.run_blocking(run)
    if broker.security is not None:
        broker.security.users_changed()

    def result(user: str) -> AlterUserScramCredentialsResult:
        code, words = problems.get(user, (ErrorCode.NONE, None))
        return AlterUserScramCredentialsResult(user=user, error_code=code, error_message=words)

    results = await in_turns(broker, ctx, each(result, dict.fromkeys(users)))
    return AlterUserScramCredentialsResponse(results=results)


def _alter(
    store: Store, deletions: list[Deletion], upsertions: list[Upsertion]
) -> dict[str, tuple[int, str]]:
    known = {
        (row.user, row.mechanism)
        for row in deletions
        if row.user
        and row.mechanism in MECHANISMS
        and MECHANISMS[row.mechanism].name in entity_configs.read(store, user_path(row.user))
    }
    problems = refusals(deletions, upsertions, known)
    for gone in deletions:
        if gone.user not in problems:
            entity_configs.alter(
                store, user_path(gone.user), {MECHANISMS[gone.mechanism].name: None}
            )
    for new in upsertions:
        if new.user not in problems:
            text = ScramCredential.derive(new).text()
            change = {MECHANISMS[new.mechanism].name: text}
            try:
                entity_configs.alter(store, user_path(new.user), change)
            except BadPathError as problem:
                problems[new.user] = (ErrorCode.UNACCEPTABLE_CREDENTIAL, str(problem))
    return problems
