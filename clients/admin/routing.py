"""How an admin request finds the brokers that can answer it, and how its items are retried.

A request has items (topics, groups, partitions...). Each item is sent to its own broker. An item
with a retriable error is sent again, without the others, until default.api.timeout.ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from kstore.clients.io.cluster import ANY, ClusterClient
from kstore.errors import (
    BrokerNotAvailableError,
    ErrorCode,
    KafkaError,
    NetworkError,
    RequestTimedOutError,
    UnknownServerError,
    UnsupportedVersionError,
    error_for,
)
from kstore.protocol.metadata.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kstore.protocol.schema import Message
from kstore.types import TopicPartition

__all__ = [
    "AdminBase",
    "AnyBroker",
    "Broker",
    "Controller",
    "Coordinator",
    "Leader",
    "Results",
    "by_topic",
    "item_error",
]

K = TypeVar("K")
K_contra = TypeVar("K_contra", contravariant=True)
T = TypeVar("T")
M = TypeVar("M", bound=Message)

# How long to ask again for a topic that the brokers do not know: it may be new.
UNKNOWN_TOPIC_WAIT_S = 2.0

# Errors of an item that went to the wrong broker, or to the right one too early. Kafka marks more
# errors as retriable; for an administrator the others are results.
TRY_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Results(dict[K, T]):
    """The results of the items that succeeded, by item. `errors` has the KafkaError of each item
    that failed.
    """

    errors: dict[K, KafkaError]

    def __init__(
        self, found: Mapping[K, T] | None = None, errors: Mapping[K, KafkaError] | None = None
    ) -> None:
        super().__init__(found or {})
        self.errors = dict(errors or {})

    def raise_first(self) -> None:
        """Raise the error of the first item that failed, if any did."""
        for error in self.errors.values():
            raise error


class Route(Protocol[K_contra]):
    """The broker that an item is sent to."""

    async def prepare(self, items: Sequence[K_contra], *, again: bool) -> None:
        """Look up what `node` needs; `again`: the last result was wrong."""

    async def node(self, item: K_contra) -> int:
        """The broker's id, or ANY. Raises KafkaError if there is none at the moment."""

    def may_retry(self, error: KafkaError, waited_s: float) -> bool:
        """Whether an item with this error is sent again."""


class AnyBroker:
    """Any broker can answer."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def prepare(self, items: Sequence[Any], *, again: bool) -> None:
        """Nothing to look up; only avoid the broker that was asked before."""
        if again:
            self._cluster.elsewhere()

    async def node(self, item: Any) -> int:
        """Any broker."""
        return ANY

    def may_retry(self, error: KafkaError, waited_s: float) -> bool:
        """Errors that mean the wrong broker, or the right one too early."""
        return error.code in TRY_AGAIN


class Controller(AnyBroker):
    """The controller, or any broker if the controller is unknown: brokers forward such requests."""

    async def prepare(self, items: Sequence[Any], *, again: bool) -> None:
        """Look up the controller; if the last result was wrong, ask another broker."""
        if again:
            self._cluster.doubt()
        if again or not self._cluster.view.brokers:
            await self._cluster.refresh([])
        await super().prepare(items, again=again)

    async def node(self, item: Any) -> int:
        """The controller."""
        view = self._cluster.view
        return view.controller_id if view.controller_id in view.brokers else ANY


class Broker(AnyBroker):
    """The broker that the item belongs to; `node_of` returns its id (ANY: the controller)."""

    def __init__(self, cluster: ClusterClient, node_of: Callable[[Any], int]) -> None:
        super().__init__(cluster)
        self._node_of = node_of
        self._controller = Controller(cluster)

    async def prepare(self, items: Sequence[Any], *, again: bool) -> None:
        """Look up the brokers."""
        await self._controller.prepare(items, again=again)

    async def node(self, item: Any) -> int:
        """The broker, if it exists."""
        node_id = self._node_of(item)
        if node_id == ANY:
            return await self._controller.node(item)
        if node_id not in self._cluster.view.brokers:
            await self._cluster.refresh([])
        if node_id not in self._cluster.view.brokers:
            known = ", ".join(map(str, sorted(self._cluster.view.brokers)))
            raise BrokerNotAvailableError(f"there is no broker {node_id}, only {known}")
        return node_id


class Leader(AnyBroker):
    """The leader of a partition."""

    async def prepare(self, items: Sequence[TopicPartition], *, again: bool) -> None:
        """Look up the leader. If the last result was wrong, ask another broker: the one that
        reported it may be cut off from the controller.
        """
        if again:
            self._cluster.doubt()
        topics = {tp.topic for tp in items}
        if again or not topics <= set(self._cluster.view.topics):
            await self._cluster.refresh(topics)

    async def node(self, item: TopicPartition) -> int:
        """The partition's leader."""
        return self._cluster.view.leader(item)

    def may_retry(self, error: KafkaError, waited_s: float) -> bool:
        """Also retries for a topic that is not known yet, for a short time."""
        return super().may_retry(error, waited_s) or _may_be_new(error, waited_s)


class Coordinator(AnyBroker):
    """The coordinator of a group or a transactional id; `key_of` returns the key of the item."""

    def __init__(
        self, cluster: ClusterClient, kind: int, key_of: Callable[[Any], str] = str
    ) -> None:
        super().__init__(cluster)
        self._kind = kind
        self._key_of = key_of

    async def prepare(self, items: Sequence[Any], *, again: bool) -> None:
        """Forget coordinators that were wrong."""
        if again:
            for key in {self._key_of(item) for item in items}:
                self._cluster.forget_coordinator(self._kind, key)

    async def node(self, item: Any) -> int:
        """The coordinator; looks it up if it is unknown."""
        return await self._cluster.coordinator(self._kind, self._key_of(item))

    def may_retry(self, error: KafkaError, waited_s: float) -> bool:
        """Also retries for a topic (of committed offsets) that is not known yet, for a short
        time.
        """
        return super().may_retry(error, waited_s) or _may_be_new(error, waited_s)


def _may_be_new(error: KafkaError, waited_s: float) -> bool:
    is_unknown = error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return is_unknown and waited_s < UNKNOWN_TOPIC_WAIT_S


Ask = Callable[[int, list[K]], Awaitable[Mapping[K, "T | KafkaError"]]]


class AdminBase:
    """The base of all families of admin requests: the cluster, and requests with items."""

    def __init__(self, cluster: ClusterClient, settings: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._timeout_ms: int = settings["default.api.timeout.ms"]
        # The time that a broker may take for a request, as the request states it.
        self._request_timeout_ms: int = min(settings["request.timeout.ms"], self._timeout_ms)

    async def _ask(
        self, node_id: int, request: Message, response: type[M], *, at_least: int = 0,
        at_most: int = 32767,
    ) -> M:  # fmt: skip
        """Send a request to one broker (or ANY) and check the type of its response."""
        answer = await self._cluster.ask(node_id, request, at_least=at_least, at_most=at_most)
        if not isinstance(answer, response):
            raise TypeError(f"expected {response.__name__}, got {type(answer).__name__}")
        return answer

    async def _each(
        self, items: Iterable[K], route: Route[K], ask: Ask[K, T], *, raise_errors: bool
    ) -> Results[K, T]:
        """Send all items along the route, until each has a result or its last error.

        `ask(node_id, items)` returns a result or an error for each. raise_errors: raise the first
        error, in the order of the items, instead of returning it.
        """
        wanted = list(dict.fromkeys(items))
        rounds = _Rounds(wanted, route, ask)
        try:
            await self._cluster.retrying(rounds.run, self._timeout_ms)
        except KafkaError as error:
            rounds.give_up(error)
        results = Results(
            {item: rounds.found[item] for item in wanted if item in rounds.found},
            {item: rounds.failed[item] for item in wanted if item in rounds.failed},
        )
        if raise_errors:
            results.raise_first()
        return results

    async def _one(self, route: Route[None], ask: Callable[[int], Awaitable[T | KafkaError]]) -> T:
        """The same for a request without items."""

        async def ask_once(node_id: int, items: list[None]) -> Mapping[None, T | KafkaError]:
            return {None: await ask(node_id)}

        return (await self._each([None], route, ask_once, raise_errors=True))[None]

    async def _every_broker(
        self, ask: Callable[[int], Awaitable[T | KafkaError]], brokers: Iterable[int] | None = None
    ) -> dict[int, T]:
        """Ask each of the brokers (None: all live ones); raises the first error.

        With None, a broker that leaves the cluster meanwhile is no error: other brokers have taken
        over, and they are asked again.
        """

        async def ask_one(node_id: int, items: list[int]) -> Mapping[int, T | KafkaError]:
            return {node_id: await ask(node_id)}

        route = Broker(self._cluster, int)
        if brokers is not None:
            return await self._each(brokers, route, ask_one, raise_errors=True)
        alive = await self._cluster.retrying(self._alive, self._timeout_ms)
        while True:
            found = await self._each(alive, route, ask_one, raise_errors=False)
            if not found.errors:
                return found
            alive = await self._cluster.retrying(self._alive, self._timeout_ms)
            if not found.errors.keys() - set(alive):
                found.raise_first()

    async def _alive(self) -> list[int]:
        """The live brokers. Metadata may also contain brokers that have just left."""
        try:
            answer = await self._ask(ANY, DescribeClusterRequest(), DescribeClusterResponse)
        except UnsupportedVersionError:
            await self._cluster.refresh([])
            return sorted(self._cluster.view.brokers)
        error = item_error("the cluster", answer.error_code, answer.error_message)
        if error is not None:
            raise error
        return sorted(row.broker_id for row in answer.brokers)


class _Rounds(Generic[K, T]):
    """The rounds of one request. Each round sends the items that may be retried.

    A result counts when it arrives, so a broker that hangs does not delay the items of others.
    """

    def __init__(self, items: list[K], route: Route[K], ask: Ask[K, T]) -> None:
        self.found: dict[K, T] = {}
        self.failed: dict[K, KafkaError] = {}
        self._pending = dict.fromkeys(items)
        self._route = route
        self._ask = ask
        self._began = asyncio.get_running_loop().time()
        self._again = False

    async def run(self) -> None:
        """One round; raises the error of an item that may be retried."""
        if not self._pending:
            return
        again, self._again = self._again, True
        items = list(self._pending)
        await self._route.prepare(items, again=again)
        requested: dict[int, list[K]] = {}
        for item, node in zip(items, await self._nodes(items), strict=True):
            if isinstance(node, KafkaError):
                self._settle(item, node)
            else:
                requested.setdefault(node, []).append(item)
        await asyncio.gather(*(self._part(node, part) for node, part in requested.items()))
        if self._pending:
            raise self.failed[next(iter(self._pending))]

    def give_up(self, error: KafkaError) -> None:
        """All pending items have failed, each with its last error if it has one."""
        for item in self._pending:
            self.failed.setdefault(item, error)

    async def _nodes(self, items: list[K]) -> list[int | KafkaError]:
        async def node(item: K) -> int | KafkaError:
            try:
                return await self._route.node(item)
            except KafkaError as error:
                return error

        return await asyncio.gather(*map(node, items))

    async def _part(self, node_id: int, items: list[K]) -> None:
        """Ask one broker for its items."""
        try:
            answers = await self._ask(node_id, items)
        except (NetworkError, RequestTimedOutError) as error:
            self.failed |= dict.fromkeys(items, error)  # the items stay pending
        except KafkaError as error:
            for item in items:
                self._settle(item, error)
        else:
            for item in items:
                missing = UnknownServerError(f"the broker's answer does not include {item}")
                self._settle(item, answers.get(item, missing))

    def _settle(self, item: K, answer: T | KafkaError) -> None:
        """Take a result, unless it may be retried."""
        if not isinstance(answer, KafkaError):
            self.found[item] = answer
            self.failed.pop(item, None)
            del self._pending[item]
            return
        self.failed[item] = answer
        waited_s = asyncio.get_running_loop().time() - self._began
        if not self._route.may_retry(answer, waited_s):
            del self._pending[item]


def item_error(what: str, code: int, message: str | None = None) -> KafkaError | None:
    """The error of an item in a response, with the item's name; None for code 0."""
    if code == ErrorCode.NONE:
        return None
    return error_for(code, f"{what}: {message or type(error_for(code)).description}")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition indexes by topic, the form of most requests."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found
