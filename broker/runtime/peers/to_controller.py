"""Forwards requests that only the controller can answer, with the principal of their sender
(KIP-590).

If the controller changes, or is not known for a moment, this waits and retries until the request's
timeout. A request can therefore be executed twice, as in Kafka.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from kstore.errors import ErrorCode, KafkaError, NetworkError, error_for
from kstore.protocol.controller.envelope import EnvelopeRequest
from kstore.protocol.registry import APIS, decode_response, encode_request

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.protocol.schema import Message

__all__ = ["ask_controller"]

RETRY_S = 0.05
AGAIN = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_CONTROLLER_EPOCH})


class ControllerLocator(Protocol):
    """A part that knows the controller."""

    @property
    def controller_id(self) -> int:
        """The controller's broker id; -1 while unknown."""

    async def ask_controller(self, request: Message, timeout_s: float) -> Any:
        """The controller's response. Raises NetworkError if there is none."""


async def ask_controller(
    membership: ControllerLocator,
    store: Store,
    request: Message,
    *,
    timeout_s: float,
    version: int | None = None,
    client_id: str | None = None,
    principal: str = "",
    client_host: str = "",
) -> Any:
    """The controller's response. Raises KafkaError (NOT_CONTROLLER, RequestTimedOutError) if there
    is none. While the coordination store is unavailable, there is only one attempt.

    ``version`` is the version of the request, by default the highest one. The other arguments
    describe the client.
    """
    api = APIS[request.API_KEY]
    version = api.max_version if version is None else version
    envelope = EnvelopeRequest(
        request_data=encode_request(request, version, 0, client_id)[4:],
        request_principal=principal.encode(),
        client_host_address=client_host.encode(),
    )
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    problem: KafkaError = error_for(ErrorCode.NOT_CONTROLLER)
    while (left := deadline - loop.time()) > 0:
        if membership.controller_id >= 0:
            try:
                response = await membership.ask_controller(envelope, left)
            except NetworkError as error:
                problem = error
            else:
                if response.error_code == ErrorCode.NONE:
                    return decode_response(response.response_data, api.response, version)[1]
                problem = error_for(response.error_code)
                if response.error_code not in AGAIN:
                    raise problem
        if store.away:  # without the store, no other broker can become controller
            raise error_for(
                ErrorCode.REQUEST_TIMED_OUT,
                f"neither the coordination store nor the controller can be reached now: {problem}",
            )
        await asyncio.sleep(RETRY_S)
    raise problem
