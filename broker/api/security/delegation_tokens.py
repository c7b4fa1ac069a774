"""CreateDelegationToken 1-3, RenewDelegationToken 1-2, ExpireDelegationToken 1-2 and
DescribeDelegationToken 1-3 (KIP-48, KIP-373).

Any broker of a cluster changes tokens, and the others follow. Only clients that have authenticated
without a delegation token may send these requests. Authentication by token is in
runtime/security/authentication.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kstore.acls import AclOperation, AclResourceType
from kstore.broker.api import RequestContext
from kstore.broker.api.requests.turns import HasTurns, in_turns
from kstore.broker.api.security.access import HasAuthorizer, allowed
from kstore.broker.coordination.store import StoreError
from kstore.broker.state.security.delegation_tokens import (
    DelegationToken,
    Principal,
    TokenRefusal,
    is_user,
)
from kstore.broker.state.work import each
from kstore.errors import ErrorCode
from kstore.protocol.security.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.security.delegation_tokens import DelegationTokens
    from kstore.broker.runtime.security.security import Security

__all__ = [
    "TokenParts",
    "handle_create_delegation_token",
    "handle_describe_delegation_token",
    "handle_expire_delegation_token",
    "handle_renew_delegation_token",
]

FIRST_WITH_REQUESTER = 3
NO_TIME = -1
"""The times in responses without a token, as in errors of Kafka's broker. (Its controller returns
0.)
"""


class TokenParts(HasAuthorizer, HasTurns, Protocol):
    """The parts of a broker that these handlers use."""

    @property
    def tokens(self) -> DelegationTokens | None:
        """The tokens. None if delegation.token.secret.key is not set."""

    @property
    def security(self) -> Security | None:
        """How clients have authenticated."""


async def handle_create_delegation_token(
    broker: TokenParts, request: CreateDelegationTokenRequest, ctx: RequestContext
) -> CreateDelegationTokenResponse:
    """Create a token for the client, or for another owner (KIP-373)."""
    requester = Principal.of(ctx.principal)
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    renewers = [Principal(row.principal_type, row.principal_name) for row in request.renewers]
    response = CreateDelegationTokenResponse(
        principal_type=owner.kind, principal_name=owner.name,
        issue_timestamp_ms=NO_TIME, expiry_timestamp_ms=NO_TIME, max_timestamp_ms=NO_TIME,
    )  # fmt: skip
    _add_requester(response, requester, ctx.api_version)
    code = _refusal(broker, ctx)
    if code == ErrorCode.NONE and owner != requester and not _may_create(broker, ctx, owner):
        code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if code == ErrorCode.NONE and not all(map(is_user, renewers)):
        code = ErrorCode.INVALID_PRINCIPAL_TYPE
    if code == ErrorCode.NONE and broker.tokens is None:
        code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = 0
    response.error_code = code
    if code or broker.tokens is None:
        return response
    try:
        token = await broker.tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except StoreError:
        response.error_code = ErrorCode.REQUEST_TIMED_OUT
        return response
    if isinstance(token, TokenRefusal):
        response.error_code = token.code
        return response
    response.issue_timestamp_ms = token.issued_ms
    response.expiry_timestamp_ms = token.expires_ms
    response.max_timestamp_ms = token.max_ms
    response.token_id = token.token_id
    response.hmac = broker.tokens.secret(token)
    return response


async def handle_renew_delegation_token(
    broker: TokenParts, request: RenewDelegationTokenRequest, ctx: RequestContext
) -> RenewDelegationTokenResponse:
    """Extend a token's expiry time."""
    code, tokens = _tokens(broker, ctx)
    if tokens is None:
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=_no_end(code))
    requester = Principal.of(ctx.principal)
    try:
        outcome = await tokens.renew(bytes(request.hmac), requester, request.renew_period_ms)
    except StoreError:
        outcome = TokenRefusal(ErrorCode.REQUEST_TIMED_OUT)
    if isinstance(outcome, DelegationToken):
        return RenewDelegationTokenResponse(expiry_timestamp_ms=outcome.expires_ms)
    return RenewDelegationTokenResponse(error_code=outcome.code)


async def handle_expire_delegation_token(
    broker: TokenParts, request: ExpireDelegationTokenRequest, ctx: RequestContext
) -> ExpireDelegationTokenResponse:
    """Set a token's expiry time. A negative period expires it at once."""
    code, tokens = _tokens(broker, ctx)
    if tokens is None:
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=_no_end(code))
    requester = Principal.of(ctx.principal)
    try:
        outcome = await tokens.expire(bytes(request.hmac), requester, request.expiry_time_period_ms)
    except StoreError:
        outcome = TokenRefusal(ErrorCode.REQUEST_TIMED_OUT)
    if isinstance(outcome, TokenRefusal):
        return ExpireDelegationTokenResponse(error_code=outcome.code)
    if broker.security is not None:
        broker.security.users_changed()  # this may close connections that use it
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=outcome.expires_ms)


async def handle_describe_delegation_token(
    broker: TokenParts, request: DescribeDelegationTokenRequest, ctx: RequestContext
) -> DescribeDelegationTokenResponse:
    """Return the tokens of the named owners, or all, that the client may see."""
    code, tokens = _tokens(broker, ctx)
    if tokens is None:
        return DescribeDelegationTokenResponse(error_code=code)
    if request.owners is not None and not request.owners:
        return DescribeDelegationTokenResponse()
    requester = Principal.of(ctx.principal)
    owners = None
    if request.owners is not None:
        owners = {Principal(row.principal_type, row.principal_name) for row in request.owners}

    def row(token: DelegationToken) -> DescribedDelegationToken | None:
        if owners is not None and not any(map(token.concerns, owners)):
            return None
        if not token.concerns(requester) and not _may_see(broker, ctx, token):
            return None
        described = _described(token, tokens.secret(token))
        _add_requester(described, token.requester, ctx.api_version)
        return described

    rows = await in_turns(broker, ctx, each(row, tokens.all()))
    return DescribeDelegationTokenResponse(tokens=[row for row in rows if row is not None])


def _add_requester(
    response: CreateDelegationTokenResponse | DescribedDelegationToken,
    requester: Principal,
    version: int,
) -> None:
    if version >= FIRST_WITH_REQUESTER:
        response.token_requester_principal_type = requester.kind
        response.token_requester_principal_name = requester.name


def _described(token: DelegationToken, secret: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=secret,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.kind, principal_name=each.name)
            for each in token.renewers
        ],
    )


# ---- authorization ----


def _tokens(broker: TokenParts, ctx: RequestContext) -> tuple[int, DelegationTokens | None]:
    """The tokens, or the error for a client that cannot use them."""
    code = _refusal(broker, ctx)
    if code:
        return code, None
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, broker.tokens


def _no_end(code: int) -> int:
    return NO_TIME if code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED else 0


def _refusal(broker: TokenParts, ctx: RequestContext) -> int:
    """The error for a client that may not use these APIs: it is not authenticated, or used a
    token.
    """
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    security = broker.security
    if security is None or ctx.connection is None:
        return refused
    protocol = security.protocols.get(ctx.listener, "PLAINTEXT")
    if protocol == "PLAINTEXT" or (protocol == "SSL" and ctx.principal == "User:ANONYMOUS"):
        return refused
    session = None if security.sasl is None else security.sasl.of(ctx.connection)
    return refused if session is not None and session.by_token else ErrorCode.NONE


def _may_create(broker: TokenParts, ctx: RequestContext, owner: Principal) -> bool:
    return allowed(broker, ctx, AclOperation.CREATE_TOKENS, AclResourceType.USER, str(owner))


def _may_see(broker: TokenParts, ctx: RequestContext, token: DelegationToken) -> bool:
    """Whether the client may describe the token of another owner. A denial is not logged."""
    return allowed(
        broker, ctx, AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id,
        quiet=True,
    ) or allowed(
        broker, ctx, AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, str(token.owner),
        quiet=True,
    )  # fmt: skip
