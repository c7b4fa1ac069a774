"""Delegation tokens (KIP-48, KIP-373): short-lived secrets that let others act as the token's
owner.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from kstore.clients.admin.routing import AdminBase, AnyBroker, item_error
from kstore.errors import KafkaError
from kstore.items import Items, items_of
from kstore.protocol.security.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

__all__ = ["DelegationToken", "DelegationTokensAdmin"]

LONGEST = -1
"""Request the longest time that the broker's settings allow."""
AT_ONCE = -1


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token. Principals have the form "User:name"; times are in ms since 1970.

    A client logs in with SCRAM. Its user is `token_id`, its password is `password`, and its
    sasl.jaas.config contains tokenauth="true": see `jaas_config`.
    """

    token_id: str
    hmac: bytes = field(repr=False)
    """The secret. Anyone who has it can act as the owner."""
    owner: str
    requester: str
    """The principal that created the token; "" if the broker does not send it (before KIP-373)."""
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    """When the token expires unless it is renewed."""
    max_timestamp_ms: int
    """The token cannot be renewed beyond this time."""

    @property
    def password(self) -> str:
        """The secret in base64."""
        return base64.b64encode(self.hmac).decode()

    @property
    def jaas_config(self) -> str:
        """The sasl.jaas.config of a client whose sasl.mechanism is SCRAM-SHA-256 or
        SCRAM-SHA-512.
        """
        return (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{self.token_id}" password="{self.password}" tokenauth="true";'
        )


class DelegationTokensAdmin(AdminBase):
    """Requests about delegation tokens. The client must be logged in, but not with a token."""

    async def create_delegation_token(
        self,
        *,
        renewers: Items[str] = (),
        max_lifetime_ms: int | None = None,
        owner: str | None = None,
    ) -> DelegationToken:
        """Create a token for the client's own principal, or for `owner` (needs CREATE_TOKENS).

        `renewers` are other principals that may renew and expire it. The broker's
        delegation.token.max.lifetime.ms limits max_lifetime_ms, and is its default.
        """
        given = items_of("renewers", renewers, str, "principals like User:alice")
        who = [_principal("renewers", each) for each in given]
        owner_type, owner_name = ("", "") if owner is None else _principal("owner", owner)

        async def ask(node_id: int) -> DelegationToken | KafkaError:
            request = CreateDelegationTokenRequest(
                owner_principal_type=owner_type,
                owner_principal_name=owner_name,
                renewers=[CreatableRenewers(principal_type=t, principal_name=n) for t, n in who],
                max_lifetime_ms=LONGEST if max_lifetime_ms is None else max_lifetime_ms,
            )
            answer = await self._ask(node_id, request, CreateDelegationTokenResponse)
            made = DelegationToken(
                answer.token_id,
                bytes(answer.hmac),
                f"{answer.principal_type}:{answer.principal_name}",
                _text(answer.token_requester_principal_type, answer.token_requester_principal_name),
                tuple(f"{kind}:{name}" for kind, name in who),
                answer.issue_timestamp_ms,
                answer.expiry_timestamp_ms,
                answer.max_timestamp_ms,
            )
            return item_error("delegation token", answer.error_code) or made

        return await self._one(AnyBroker(self._cluster), ask)

    async def renew_delegation_token(
        self, token: DelegationToken | bytes, *, period_ms: int | None = None
    ) -> int:
        """Extend the lifetime of a token (or of the token with this HMAC) to `period_ms` from now.
        The broker's delegation.token.expiry.time.ms is the maximum and the default. Returns the new
        expiry time in ms since 1970.
        """

        async def ask(node_id: int) -> int | KafkaError:
            period = LONGEST if period_ms is None else period_ms
            request = RenewDelegationTokenRequest(hmac=_hmac(token), renew_period_ms=period)
            answer = await self._ask(node_id, request, RenewDelegationTokenResponse)
            error = item_error("delegation token", answer.error_code)
            return error or answer.expiry_timestamp_ms

        return await self._one(AnyBroker(self._cluster), ask)

    async def expire_delegation_token(
        self, token: DelegationToken | bytes, *, period_ms: int | None = None
    ) -> int:
        """Make a token (or the token with this HMAC) expire `period_ms` from now. None removes it
        at once. Returns the expiry time in ms since 1970.
        """

        async def ask(node_id: int) -> int | KafkaError:
            period = AT_ONCE if period_ms is None else period_ms
            request = ExpireDelegationTokenRequest(hmac=_hmac(token), expiry_time_period_ms=period)
            answer = await self._ask(node_id, request, ExpireDelegationTokenResponse)
            error = item_error("delegation token", answer.error_code)
            return error or answer.expiry_timestamp_ms

        return await self._one(AnyBroker(self._cluster), ask)

    async def describe_delegation_tokens(
        self, owners: Items[str] | None = None
    ) -> list[DelegationToken]:
        """The tokens of these owners (None: of all) that the client may see, sorted by id. These
        are tokens that it owns, created or may renew, and tokens that ACLs allow it to describe.
        """
        wanted = None
        if owners is not None:
            given = items_of("owners", owners, str, "principals like User:alice")
            wanted = [
                DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, name in (_principal("owners", each) for each in given)
            ]

        async def ask(node_id: int) -> list[DelegationToken] | KafkaError:
            request = DescribeDelegationTokenRequest(owners=wanted)
            answer = await self._ask(node_id, request, DescribeDelegationTokenResponse)
            found = [
                DelegationToken(
                    row.token_id,
                    bytes(row.hmac),
                    f"{row.principal_type}:{row.principal_name}",
                    _text(row.token_requester_principal_type, row.token_requester_principal_name),
                    tuple(f"{each.principal_type}:{each.principal_name}" for each in row.renewers),
                    row.issue_timestamp,
                    row.expiry_timestamp,
                    row.max_timestamp,
                )
                for row in answer.tokens
            ]
            error = item_error("delegation tokens", answer.error_code)
            return error or sorted(found, key=lambda token: token.token_id)

        return await self._one(AnyBroker(self._cluster), ask)


def _principal(what: str, text: str) -> tuple[str, str]:
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(
            f"{what}: {text!r} is not a principal; write its type and name: User:alice"
        )
    return kind, name


def _text(kind: str, name: str) -> str:
    return f"{kind}:{name}" if kind else ""


def _hmac(token: DelegationToken | bytes) -> bytes:
    return token.hmac if isinstance(token, DelegationToken) else token
