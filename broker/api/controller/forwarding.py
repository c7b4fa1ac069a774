"""Requests that a broker of a cluster cannot answer itself, or not yet. Requests that only the
controller can answer are forwarded to it. All requests of clients wait until this broker has joined
the cluster.

So a client can send any request to any broker. If no controller is available in time, the client
gets an error in the form of its request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from kstore.broker.api import Handler, RequestContext
from kstore.broker.api.metadata.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kstore.broker.api.requests.error_responses import failed
from kstore.broker.coordination.store import StoreError
from kstore.broker.runtime.config_changes.config_reload import TOPICS
from kstore.broker.runtime.metadata.features import FEATURE_NODE
from kstore.broker.runtime.peers.to_controller import ask_controller
from kstore.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kstore.broker.api.controller.parts import ForwardingParts, HasNode

__all__ = ["carried_out", "configs_to_controller", "to_controller", "when_ready"]

CHANGED_BY = {49: {"/config/clients"}, 51: {"/config/users"}, 57: {FEATURE_NODE}}
"""API key to the paths in the store that the API changes and brokers cache. This broker reads them
again before it answers, so the client sees its change.
"""
FOLDERS = {TOPIC: TOPICS, BROKER: "brokers", GROUP: "groups", CLIENT_METRICS: "client-metrics"}
LONGEST_S = 30.0
"""The upper limit of a client's timeout. Most clients give up after 30 s."""
AT_LEAST_S = 1.0
READY_S = 20.0
"""How long a client's request waits until this broker has joined the cluster."""


def carried_out(handler: Handler) -> Callable[[HasNode, Any, RequestContext], Awaitable[Any]]:
    """Wrap a handler: if the coordination store fails, or this broker is no longer the controller
    when the request's turn comes, the client gets an error. After a failure of the store, the
    request may or may not have taken effect.
    """

    async def run(broker: HasNode, request: Any, ctx: RequestContext) -> Any:
        try:
            response = handler(broker, request, ctx)
            return await response if isawaitable(response) else response
        except StoreError as problem:
            words = (
                "The coordination store failed, so the request may or may not have taken "
                f"effect: {problem}"
            )
            broker.node.report(f"a request of {ctx.client_id}: {words}", words)
            return failed(request, ctx.api_version, ErrorCode.REQUEST_TIMED_OUT, words)
        except KafkaError as problem:
            return failed(request, ctx.api_version, problem.code, str(problem))

    return run


def to_controller(handler: Handler) -> Handler:
    """Wrap a handler: the controller runs it, and any other broker forwards the request."""
    here = carried_out(handler)

    async def hand_on(broker: ForwardingParts, request: Any, ctx: RequestContext) -> Any:
        response = await _ask(broker, request, ctx)
        wait_ms = getattr(response, "throttle_time_ms", 0)
        if wait_ms and broker.throttles is not None and ctx.connection is not None:
            broker.throttles.hold(ctx.connection, wait_ms)
        if ctx.api_key in CHANGED_BY:
            with suppress(StoreError):  # its watch will see the change
                await broker.config_reload.reload(CHANGED_BY[ctx.api_key])
        return response

    def route(broker: ForwardingParts, request: Any, ctx: RequestContext) -> Any:
        if broker.membership.is_controller:
            return here(broker, request, ctx)
        return hand_on(broker, request, ctx)

    return route


def configs_to_controller(handler: Handler) -> Handler:
    """As `to_controller`, except that a broker changes the settings that only it may change."""
    here = carried_out(handler)

    async def share(broker: ForwardingParts, request: Any, ctx: RequestContext) -> Any:
        shared = [row for row in request.resources if not _is_own(row)]
        own = [row for row in request.resources if _is_own(row)]
        form = type(request)
        answers: dict[tuple[int, str], Any] = {}
        for part in (own, shared):
            if part:
                requested = form(resources=part, validate_only=request.validate_only)
                response = await (here if part is own else _ask)(broker, requested, ctx)
                answers |= {(a.resource_type, a.resource_name): a for a in response.responses}
        if not request.validate_only:
            with suppress(StoreError):
                await broker.config_reload.reload({_node(row) for row in shared})
        response.responses = [
            answers[row.resource_type, row.resource_name] for row in request.resources
        ]
        return response

    def route(broker: ForwardingParts, request: Any, ctx: RequestContext) -> Any:
        if broker.membership.is_controller or all(map(_is_own, request.resources)):
            return here(broker, request, ctx)
        return share(broker, request, ctx)

    return route


def _is_own(resource: Any) -> bool:
    """Whether the resource belongs to one broker, and only that broker changes it."""
    named_broker = resource.resource_type == BROKER and resource.resource_name
    return bool(named_broker) or resource.resource_type == BROKER_LOGGER


def _node(resource: Any) -> str:
    """The path of the settings of a resource. Each topic has its own; other kinds share one."""
    kind = FOLDERS.get(resource.resource_type, "")
    return f"/config/{kind}/{resource.resource_name}"


async def _ask(broker: ForwardingParts, request: Any, ctx: RequestContext) -> Any:
    """The controller's response, or the error for the client if there is none."""
    timeout_s = getattr(request, "timeout_ms", LONGEST_S * 1000) / 1000
    try:
        return await ask_controller(
            broker.membership,
            broker.store,
            request,
            timeout_s=min(max(timeout_s, AT_LEAST_S), LONGEST_S),
            version=ctx.api_version,
            client_id=ctx.client_id,
            principal=ctx.principal,
            client_host=ctx.client_host,
        )
    except KafkaError as problem:
        return failed(request, ctx.api_version, _error_code(problem), str(problem))


def when_ready(handler: Handler) -> Handler:
    """Wrap a handler so that it waits until this broker has joined the cluster: before that, it
    would answer that nothing exists.
    """

    async def wait(broker: ForwardingParts, request: Any, ctx: RequestContext) -> Any:
        try:
            await asyncio.wait_for(broker.membership.wait_joined(), READY_S)
        except TimeoutError:
            words = "a client's request is answered before the controller has said anything"
            broker.node.report(words, words)
        response = handler(broker, request, ctx)
        return await response if isawaitable(response) else response

    def route(broker: ForwardingParts, request: Any, ctx: RequestContext) -> Any:
        if broker.membership.joined:
            return handler(broker, request, ctx)
        return wait(broker, request, ctx)

    return route


def _error_code(problem: KafkaError) -> int:
    """The error that a client gets: one after which clients look for the controller again."""
    if problem.code == ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NOT_CONTROLLER
