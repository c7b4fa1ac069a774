"""Applies injected faults. While there are any, the data plane calls `FaultInjector.strike` for
each request. Error responses have the form of their API.

state/faults.py evaluates the rules. Only a broker with kstore.fault.injection.enable has a
FaultInjector. Without rules the data plane does not call it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kstore.broker.api import API_TABLE
from kstore.broker.api.requests.error_responses import (
    PATCHED,
    TOPIC_APIS,
    failed,
    patch,
    put_in,
    request_partitions,
    split,
)
from kstore.broker.server import Later
from kstore.broker.state.faults import Fault, FaultError, FaultRules, RequestFacts, Strike
from kstore.errors import ErrorCode, ProtocolError
from kstore.protocol.registry import API_VERSIONS, APIS

if TYPE_CHECKING:
    from kstore._fast.broker.slots import Slot
    from kstore._fast.network.connection import Connection
    from kstore.broker.server import Server

__all__ = ["FaultInjector"]

PRODUCE, FETCH = 0, 1
FIRST_TOPIC_ID = 13
FIRST_FETCH_ERROR = 7
BROKER_CLIENT = re.compile(r"broker-\d+(-fetcher)?")
MESSAGE = "A fault that was injected for a test."
SESSION_ERRORS = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}


class FaultInjector:
    """The faults of one broker. Everything here runs on its loop."""

    def __init__(self, server: Server) -> None:
        self.rules = FaultRules()
        self.server = server

    def add(self, faults: Sequence[Fault]) -> list[int]:
        """Add rules and return their numbers. They apply from the next request on. Raises
        FaultError for an invalid rule.
        """
        for fault in faults:
            _check(fault)
        numbers = [self.rules.add(fault) for fault in faults]
        self._update_plane()
        return numbers

    def remove(self, number: int) -> bool:
        """Remove a rule; returns whether it existed."""
        found = self.rules.remove(number)
        self._update_plane()
        return found

    def clear(self) -> None:
        """Remove all rules. Responses that were dropped already are not sent."""
        self.rules.clear()
        self._update_plane()

    def _update_plane(self) -> None:
        self.server.broker.plane.faults = self if len(self.rules) else None

    # ---- what the data plane calls ----

    def strike(
        self,
        connection: Connection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: bytes | None,
        body: bytes,
    ) -> FaultEffects | None:
        """Decide what happens to a request. None: no fault applies."""
        if version < 0 or not self.rules.concerns(api_key):
            return None
        decoded = _DecodedRequest(
            self.server, connection, api_key, version, correlation_id, client_id, body
        )
        try:
            facts = decoded.facts()
            if self.rules.names_topics(facts):
                facts = facts._replace(partitions=decoded.partitions())
            strikes = self.rules.strike(facts)
            return FaultEffects(decoded, strikes) if strikes else None
        except ProtocolError:
            return None  # the handler fails in the same way and reports it


class _DecodedRequest:
    """One request, decoded on first use."""

    def __init__(
        self,
        server: Server,
        connection: Connection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: bytes | None,
        body: bytes,
    ) -> None:
        self.server = server
        self.broker = server.broker
        self.connection = connection
        self.api_key = api_key
        self.version = version
        self._head = (connection, api_key, version, correlation_id, client_id)
        self._client_id = (client_id or b"").decode("utf-8", "replace")
        self._body = body
        self._request: Any = None
        self._partitions: frozenset[tuple[str, int]] | None = None

    @property
    def request(self) -> Any:
        """The decoded message. Raises ProtocolError."""
        if self._request is None:
            cls = APIS[self.api_key].request
            self._request = cls.decode(self._body, self.version, allow_trailing=True)
        return self._request

    def facts(self) -> RequestFacts:
        """The request's properties that rules match, without its topics."""
        internal = API_TABLE[self.api_key].internal
        from_broker = internal or BROKER_CLIENT.fullmatch(self._client_id) is not None
        node_id = self.broker.node_id
        return RequestFacts(self.api_key, self._client_id, node_id, from_broker)

    def partitions(self) -> frozenset[tuple[str, int]]:
        """The topics and partitions of the request, including those of its fetch session."""
        if self._partitions is None:
            found = set(request_partitions(self.request, self.version, self.name_of))
            if self.api_key == FETCH and self.version >= FIRST_FETCH_ERROR:
                found |= self._session_partitions()
            if self.api_key in PATCHED and not self.request.topics:
                found = {(name, -1) for name in self.broker.image.topics}
            self._partitions = frozenset(found)
        return self._partitions

    def _session_partitions(self) -> set[tuple[str, int]]:
        by_id = self.version >= FIRST_TOPIC_ID
        return {
            (self.name_of(UUID(bytes=topic)) if by_id else topic.decode(), index)
            for topic, index in self.broker.plane.fetch.session_partitions(self.request.session_id)
        }

    def name_of(self, topic_id: UUID) -> str:
        """A topic's name; "" for an unknown id."""
        topic = self.broker.image.topic_by_id(topic_id)
        return "" if topic is None else topic.name

    async def carry_out(self, request: Any) -> Any:
        """Run the API's handler and return its response as a message (some responses encode
        themselves).
        """
        handler, api, _ = self.server.handler(self.api_key)
        response = handler(self.broker, request, self.server.context(*self._head))
        if isawaitable(response):
            response = await response
        return api.response.decode(response.encode(self.version), self.version)

    def later(self, answer: Any, version: int) -> Later:
        """An answer that the server waits for."""
        return Later(answer, APIS[self.api_key], version, self.connection)


class FaultEffects:
    """What happens to one request; the data plane executes it."""

    def __init__(self, decoded: _DecodedRequest, strikes: Iterable[Strike]) -> None:
        self.cuts_before = self.cuts_after = False
        self.lost = False
        """The request is neither executed nor answered."""
        self.refused: dict[Any, int] | None = None
        """Produce: partition to error; its records are not appended."""
        self.denied: dict[Any, int] | None = None
        """Produce: partition to error; its records are appended."""
        self.unread: dict[Any, int] | None = None
        """Fetch: partition to error."""
        self.fetch_error = 0
        self._decoded = decoded
        self._wait_ms = 0
        self._hold_ms: float = 0
        self._errors: list[Strike] = []
        self._call_later = decoded.server.call_later
        for strike in strikes:
            _TAKE[strike.fault.action](self, strike)
        if decoded.api_key == PRODUCE and self._hold_ms and decoded.request.acks == 0:
            self._hold_ms = 0  # there is no answer to delay
        if self._errors and decoded.api_key in {PRODUCE, FETCH}:
            self._fail_partitions()

    @property
    def holds(self) -> bool:
        """Whether this response and the later ones of its connection are delayed."""
        return self._hold_ms > 0

    def wait(self, resume: Callable[[], None]) -> bool:
        """Whether the request must wait; ``resume`` is called at the end of the wait."""
        wait_ms, self._wait_ms = self._wait_ms, 0
        if wait_ms:
            self._call_later(wait_ms / 1000, resume)
        return wait_ms > 0

    def hold(self, slot: Slot) -> None:
        """Send the response of this slot after the delay, or never."""
        hold_ms, self._hold_ms = self._hold_ms, 0
        if hold_ms < NEVER_MS:
            self._call_later(hold_ms / 1000, slot.complete, None)

    def answer(self) -> Later | None:
        """The response that replaces the handler's. None: no change."""
        if not self._errors:
            return None
        decoded, code = self._decoded, self._errors[0].fault.code
        old = decoded.api_key == API_VERSIONS and code == ErrorCode.UNSUPPORTED_VERSION
        return decoded.later(self._answer(), 0 if old else decoded.version)

    # ---- the actions ----

    def _take_delay(self, strike: Strike) -> None:
        if strike.fault.when == "before":
            self._wait_ms += strike.fault.delay_ms
        else:
            self._hold_ms += strike.fault.delay_ms

    def _take_drop(self, strike: Strike) -> None:
        self.lost = strike.fault.when == "before"
        self._hold_ms = NEVER_MS

    def _take_disconnect(self, strike: Strike) -> None:
        self.cuts_before = strike.fault.when == "before"
        self.cuts_after = not self.cuts_before
        self._hold_ms = NEVER_MS

    def _take_error(self, strike: Strike) -> None:
        self._errors.append(strike)

    # ---- errors ----

    def _fail_partitions(self) -> None:
        """Produce and Fetch: the data plane writes the errors into the response."""
        errors, self._errors = self._errors, []
        fetch = self._decoded.api_key == FETCH
        refused: dict[Any, int] = {}
        denied: dict[Any, int] = {}
        for fault, named in errors:
            everything = self._decoded.partitions()
            if fetch and not named and (fault.code in SESSION_ERRORS or not everything):
                self.fetch_error = fault.code if self._decoded.version >= FIRST_FETCH_ERROR else 0
            into = denied if fault.when == "after" and not fetch else refused
            for topic, index in named or everything:
                partition = self._decoded.broker.table.partition(topic.encode(), index)
                if partition is not None and partition not in refused and partition not in denied:
                    into[partition] = fault.code
        if fetch:
            self.unread = refused
        else:
            self.refused, self.denied = refused or None, denied or None

    async def _answer(self) -> Any:
        """The response with the error for all partitions. If only some partitions fail, the others
        get the handler's response.
        """
        decoded, request = self._decoded, self._decoded.request
        whole = next((strike.fault for strike in self._errors if not strike.partitions), None)
        if decoded.api_key in PATCHED:
            response = await decoded.carry_out(request)
            for fault, _ in self._errors:
                patch(response, fault.topic, fault.partition, fault.code)
            return response
        if whole is not None:
            failure = failed(request, decoded.version, whole.code, MESSAGE)
            if whole.when == "after":
                await decoded.carry_out(request)
            return failure
        return await self._answer_in_parts()

    async def _answer_in_parts(self) -> Any:
        decoded, version = self._decoded, self._decoded.version
        refused = {p for fault, named in self._errors if fault.when == "before" for p in named}
        failures = []
        for fault, named in self._errors:
            taken, _ = split(decoded.request, version, named, decoded.name_of)
            failures.append(failed(taken, version, fault.code, MESSAGE, partitions_only=True))
        _, rest = split(decoded.request, version, refused, decoded.name_of)
        response = failures[0] if rest is None else await decoded.carry_out(rest)
        for failure in failures:
            if failure is not response:
                put_in(failure, response, version)
        return response


NEVER_MS = float("inf")
_TAKE: dict[str, Callable[[FaultEffects, Strike], None]] = {
    "delay": FaultEffects._take_delay,
    "drop": FaultEffects._take_drop,
    "disconnect": FaultEffects._take_disconnect,
    "error": FaultEffects._take_error,
}


def _check(fault: Fault) -> None:
    """Raise FaultError if a rule has topics and the requests of its API have none."""
    if fault.api is None:
        return
    name = APIS[fault.api].name
    if fault.topic is not None and fault.api not in TOPIC_APIS:
        raise FaultError(f"a fault for {name} takes no topic: its requests name none")
