"""Who may ask what brokers ask each other: the APIs that the table has as internal, and whose
principal an Envelope may name.

They are served at the listener between brokers alone; at any other the connection is closed, as
Kafka does. Where clients share that listener, the right CLUSTER_ACTION does not make a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstore.broker.api import Handler, RequestContext
from kstore.broker.api.requests.error_responses import failed
from kstore.errors import ErrorCode, ProtocolError
from kstore.protocol.registry import APIS

if TYPE_CHECKING:
    from kstore.broker.api.controller.parts import BetweenBrokersParts

__all__ = ["REFUSED", "between_brokers", "may_name"]

ANONYMOUS = "User:ANONYMOUS"
REFUSED = "a request that only brokers send"
"""Of such lines in the log only some are told."""


def between_brokers(handler: Handler) -> Handler:
    """The handler, for brokers only. ProtocolError, which ends the connection, at a listener that
    is not theirs.
    """

    def check(broker: BetweenBrokersParts, request: Any, ctx: RequestContext) -> Any:
        theirs = broker.node.config.inter_broker_listener.name
        if ctx.listener != theirs:
            raise ProtocolError(
                f"{ctx.principal} sent {APIS[ctx.api_key].name} to the listener {ctx.listener}: "
                f"only brokers may send it, and only to {theirs}"
            )
        if not _is_broker(broker, ctx):
            words = (
                f"{ctx.principal} is not the principal of a broker: add it to super.users, or set "
                "a separate listener for brokers (inter.broker.listener.name)"
            )
            name = APIS[ctx.api_key].name
            broker.node.report(f"{name} of {ctx.connection_id} is refused: {words}", REFUSED)
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return failed(request, ctx.api_version, code, words)
        return handler(broker, request, ctx)

    return check


def may_name(broker: BetweenBrokersParts, ctx: RequestContext, principal: str) -> bool:
    """Whether who asks may hand on a request of this principal. Where brokers and clients come to
    the same listener under the same name, nobody can be told from a client.
    """
    return principal == ctx.principal or _stands_for_others(broker, ctx)


def _is_broker(broker: BetweenBrokersParts, ctx: RequestContext) -> bool:
    """Whether who asks, at the listener between brokers, is one of them."""
    return _stands_for_others(broker, ctx) or ctx.principal == _own_principal(broker)


def _stands_for_others(broker: BetweenBrokersParts, ctx: RequestContext) -> bool:
    authorizer = broker.authorizer
    if authorizer is None:
        return True  # then all may do everything, under every name
    if len(broker.node.config.listeners) > 1 or ctx.principal in authorizer.super_users:
        return True  # at a listener of their own, the right that the API requires is enough
    return ctx.principal == _own_principal(broker) != ANONYMOUS


def _own_principal(broker: BetweenBrokersParts) -> str | None:
    """As whom this broker comes to others, if it knows: they may have the same name."""
    return ANONYMOUS if broker.security is None else broker.security.own_principal
