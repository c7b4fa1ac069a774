"""Answers requests whose change a single broker cannot store, because the disk of its coordination
store is full or fails. Without it, the connection would be closed, and clients would guess why.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from kstore.broker.api import Handler, RequestContext
from kstore.broker.api.requests.error_responses import failed
from kstore.broker.coordination.store import StoreDiskError
from kstore.errors import ErrorCode
from kstore.protocol.registry import APIS

__all__ = ["with_store_errors"]


def with_store_errors(handler: Handler) -> Handler:
    """Wrap a handler so that a failure of the store's disk becomes a response with
    KAFKA_STORAGE_ERROR.
    """

    def answer(broker: Any, request: Any, ctx: RequestContext) -> Any:
        response = handler(broker, request, ctx)
        if isinstance(response, Awaitable):
            return _with_error(response, broker, request, ctx)
        return response

    return answer


async def _with_error(
    response: Awaitable[Any], broker: Any, request: Any, ctx: RequestContext
) -> Any:
    try:
        return await response
    except StoreDiskError as problem:
        name = APIS[ctx.api_key].name
        broker.node.report(f"{name} of {ctx.connection_id} failed: {problem}", "the store's disk")
        return failed(request, ctx.api_version, ErrorCode.KAFKA_STORAGE_ERROR, str(problem))
