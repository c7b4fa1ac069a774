"""Checks that only brokers send the requests that are internal in the table of APIs, and which
principals an Envelope may have.

These requests are served only on the inter-broker listener. On any other listener the connection is
closed, as in Kafka. If clients use the same listener, a client with the right CLUSTER_ACTION is
still not a broker.
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
"""The kind of these log lines, which limits how many are written."""


def between_brokers(handler: Handler) -> Handler:
    """Wrap a handler so that it serves only brokers. On another listener it raises ProtocolError,
    which closes the connection.
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
    """Whether the sender may forward a request of this principal. Brokers and clients that use the
    same listener and the same name cannot be distinguished.
    """
    return principal == ctx.principal or _stands_for_others(broker, ctx)


def _is_broker(broker: BetweenBrokersParts, ctx: RequestContext) -> bool:
    """Whether the sender on the inter-broker listener is a broker."""
    return _stands_for_others(broker, ctx) or ctx.principal == _own_principal(broker)


def _stands_for_others(broker: BetweenBrokersParts, ctx: RequestContext) -> bool:
    authorizer = broker.authorizer
    if authorizer is None:
        return True  # without an authorizer, every principal may do everything
    if len(broker.node.config.listeners) > 1 or ctx.principal in authorizer.super_users:
        return True  # on a separate listener, the right that the API requires is enough
    return ctx.principal == _own_principal(broker) != ANONYMOUS


def _own_principal(broker: BetweenBrokersParts) -> str | None:
    """The principal that this broker has on other brokers, if known. Other brokers may have the
    same.
    """
    return ANONYMOUS if broker.security is None else broker.security.own_principal
