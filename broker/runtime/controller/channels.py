"""Sends the controller's messages to brokers, in order and until they are answered.

There is one channel per live broker. A channel stores *what* has changed, not messages: each round
builds messages from the controller's current state. Changes that arrive while a broker is busy are
therefore sent together, and failed messages are built again. A round is StopReplica, LeaderAndIsr,
UpdateMetadata; each is sent after the response to the one before. A deletion that a broker cannot
do yet, because its log dir hangs, is sent again a second later, in parallel to everything else. A
broker that has just registered gets everything, with the metadata first.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kstore.broker.runtime.slices import Slices
from kstore.broker.state.controller import messages
from kstore.broker.state.controller.state import PIECE
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.controller.broker_requests import (
    FULL,
    INCREMENTAL,
    LeaderAndIsrRequest,
    LeaderAndIsrTopic,
    StopReplicaRequest,
    UpdateMetadataRequest,
    UpdateMetadataTopic,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.peers.peers import Peers
    from kstore.broker.state.controller.state import ControllerState, TopicId
    from kstore.broker.state.metadata.image import BrokerImage
    from kstore.protocol.schema import Message

__all__ = ["Channel", "Channels"]

LOGGER = logging.getLogger("kstore.controller")
T = TypeVar("T", LeaderAndIsrTopic, UpdateMetadataTopic)
REQUEST_TIMEOUT_S = 30.0
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0
MOST_LEADERSHIPS = 250
"""Partitions in one round: a broker that takes long to open logs gets elections in between."""
DONE = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Error codes of StopReplica after which the replica does not exist."""


class _Changes:
    """The changes that one broker must receive."""

    def __init__(self) -> None:
        self.full = False
        self.metadata_due = False
        self.leaderships: set[tuple[str, int]] = set()
        self.metadata: set[tuple[str, int]] = set()
        self.deleted: dict[TopicId, int] = {}
        self.stops: dict[tuple[TopicId, int], bool] = {}

    def __bool__(self) -> bool:
        return bool(
            self.full or self.metadata_due or self.leaderships or self.metadata
            or self.deleted or self.stops
        )  # fmt: skip

    def add(self, other: _Changes) -> None:
        """Add changes."""
        self.full |= other.full
        self.metadata_due |= other.metadata_due
        self.leaderships |= other.leaderships
        self.metadata |= other.metadata
        self.deleted |= other.deleted
        for replica, delete in other.stops.items():
            self.stops[replica] = delete or self.stops.get(replica, False)

    def split(self, state: ControllerState) -> _Changes:
        """Keep as many partitions as fit into one round, and return the rest. Elections come before
        new partitions, whose logs take longer to open.
        """
        left = _Changes()
        if self.full or len(self.leaderships) <= MOST_LEADERSHIPS:
            return left

        def is_new(place: tuple[str, int]) -> bool:
            partition = state.partition(*place)
            return partition is not None and partition.state_version == 0

        order = sorted(self.leaderships, key=lambda place: (is_new(place), place))
        left.leaderships = set(order[MOST_LEADERSHIPS:])
        left.metadata = self.metadata & left.leaderships
        self.leaderships -= left.leaderships
        self.metadata -= left.metadata
        return left


class Channel:
    """A channel to one registration of a broker."""

    def __init__(self, channels: Channels, broker: BrokerImage) -> None:
        self.broker = broker
        self._channels = channels
        self._news = _Changes()
        self._wanted = 0
        self._answered = 0
        self._more = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._task = asyncio.get_running_loop().create_task(self._run())

    def send(self, news: _Changes) -> None:
        """Send changes to the broker in the next round."""
        if news:
            self._news.add(news)
            self._wanted += 1
            self._more.set()

    def when_answered(self) -> asyncio.Future[None]:
        """Done when the broker has answered all messages about earlier changes, or is gone."""
        future = asyncio.get_running_loop().create_future()
        if self._answered >= self._wanted or self._task.done():
            future.set_result(None)
        else:
            self._waiters.append((self._wanted, future))
        return future

    def close(self) -> None:
        """Close the channel, since the broker or the controller is gone."""
        self._task.cancel()
        self._wake(self._wanted)

    def _wake(self, number: int) -> None:
        for wanted, future in self._waiters:
            if wanted <= number and not future.done():
                future.set_result(None)
        self._waiters = [each for each in self._waiters if not each[1].done()]

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            await self._more.wait()
            self._more.clear()
            news, self._news = self._news, _Changes()
            number = self._wanted
            left = news.split(self._channels.state)
            problem = None
            try:
                problem = await self._round(news)
            except (KafkaError, OSError) as error:
                problem = str(error) or type(error).__name__
            except Exception:
                LOGGER.exception("broker %d could not be reached", self.broker.node_id)
                problem = "a bug in the controller"
            if problem is None:
                pause_s = FIRST_PAUSE_S
                if left:
                    self._news.add(left)
                    self._more.set()
                else:
                    self._answered = number
                    self._wake(number)
                continue
            LOGGER.info("repeating the requests to broker %d: %s", self.broker.node_id, problem)
            self._news.add(news)
            self._news.add(left)
            self._more.set()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _round(self, news: _Changes) -> str | None:
        """Send all changes. Returns None, or what failed."""
        problem = None
        # A new group coordinator must know which partitions groups must read first.
        metadata_first = news.full or bool(self._channels.state.contractions)
        if metadata_first:
            problem = await self._send_metadata(news)
        problem = problem or await self._send_stops(news)
        problem = problem or await self._send_leaderships(news)
        if not metadata_first:
            problem = problem or await self._send_metadata(news)
        return problem

    async def _send_metadata(self, news: _Changes) -> str | None:
        state = self._channels.state
        epoch = self._channels.controller_epoch
        if not (news.full or news.metadata_due or news.metadata or news.deleted):
            return None
        request = UpdateMetadataRequest(type=FULL if news.full else INCREMENTAL)
        if not news.full:
            request.topic_states = [
                messages.deleted_topic(topic, count, epoch) for topic, count in news.deleted.items()
            ]
        slices = Slices()
        for name, indexes in _pieces(state, news.metadata, everything=news.full):
            _add(request.topic_states, messages.metadata(state, name, indexes, epoch))
            await slices.breathe()
        request.live_brokers = messages.live_brokers(state)
        request.max_partition_epoch = state.partition_epoch
        return _error_of(await self._ask(request))

    async def _send_leaderships(self, news: _Changes) -> str | None:
        state = self._channels.state
        epoch = self._channels.controller_epoch
        if not (news.full or news.leaderships):
            return None
        node = self.broker.node_id
        topics: list[LeaderAndIsrTopic] = []
        slices = Slices()
        for name, indexes in _pieces(state, news.leaderships, everything=news.full):
            _add(topics, messages.leaderships(state, name, indexes, node, epoch))
            await slices.breathe()
        if not (topics or news.full):
            return None
        request = LeaderAndIsrRequest(
            type=FULL if news.full else INCREMENTAL,
            topic_states=topics,
            live_leaders=messages.live_leaders(state, topics),
            request_number=next(self._channels.numbers),
        )
        response = await self._ask(request)
        if response.error_code == ErrorCode.NONE:
            self._channels.note_failures(self.broker, topics, response)
            self._channels.note_ends(self.broker, topics, response)
        return _error_of(response)

    async def _send_stops(self, news: _Changes) -> str | None:
        if not news.stops:
            return None
        state = self._channels.state
        replicas = [(topic, index, delete) for (topic, index), delete in news.stops.items()]
        topics = messages.stops(state, self.broker.node_id, replicas)
        response = await self._ask(StopReplicaRequest(topic_states=topics))
        if response.error_code != ErrorCode.NONE:
            return _error_of(response)
        failed = {
            (row.topic_name, row.partition_index): row.error_code
            for row in response.partition_errors
            if row.error_code not in DONE
        }
        self._stop_later(replicas, failed)
        deleted = [
            (topic, index)
            for topic, index, delete in replicas
            if delete and (topic.name, index) not in failed
        ]
        if deleted:
            self._channels.when_deleted(self.broker.node_id, deleted)
        return None

    def _stop_later(
        self, replicas: list[tuple[TopicId, int, bool]], failed: dict[tuple[str, int], int]
    ) -> None:
        """Repeat later what the broker cannot do yet because its log dir hangs. Everything else
        continues.
        """
        news = _Changes()
        for topic, index, delete in replicas:
            if failed.get((topic.name, index)) == ErrorCode.REQUEST_TIMED_OUT:
                news.stops[topic, index] = delete
        if news:
            asyncio.get_running_loop().call_later(LONGEST_PAUSE_S, self.send, news)

    async def _ask(self, request: Any) -> Any:
        """The broker's response. If it knows a controller with a higher epoch, this one ends."""
        request.controller_id = self._channels.controller_id
        request.controller_epoch = self._channels.controller_epoch
        request.broker_epoch = self.broker.epoch
        response = await self._channels.ask(self.broker, request)
        if response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self._channels.when_deposed(f"broker {self.broker.node_id} knows a later controller")
        return response


class ChannelOwner(Protocol):
    """The controller, as its channels see it."""

    @property
    def node_id(self) -> int:
        """Its broker's id."""

    @property
    def epoch(self) -> int:
        """The controller epoch."""

    @property
    def state(self) -> ControllerState:
        """The current state."""

    def deposed(self, why: str) -> None:
        """Called when another controller is elected."""

    def replicas_failed(self, broker: BrokerImage, failed: set[tuple[str, int]]) -> None:
        """Called when a broker cannot open replicas."""

    def logs_ended(
        self, broker: BrokerImage, requested: Sequence[LeaderAndIsrTopic], response: Any
    ) -> None:
        """Called when a broker has reported where logs end."""

    def replicas_deleted(self, node: int, deleted: list[tuple[TopicId, int]]) -> None:
        """A broker has deleted replicas."""


class Channels:
    """All channels of one controller."""

    def __init__(self, controller: ChannelOwner, peers: Peers, *, sends_epochs: bool) -> None:
        """``sends_epochs``: the brokers support broker epochs of ISRs."""
        self.controller_id = controller.node_id
        self.controller_epoch = controller.epoch
        self.when_deposed = controller.deposed
        self.when_deleted = controller.replicas_deleted
        self._when_offline = controller.replicas_failed
        self._when_ended = controller.logs_ended
        self.numbers = itertools.count()
        """The numbers of LeaderAndIsr requests, by which a broker recognizes a late one."""
        self._controller = controller
        self._peers = peers
        self._sends_epochs = sends_epochs
        self._channels: dict[int, Channel] = {}

    @property
    def state(self) -> ControllerState:
        """The controller's current state."""
        return self._controller.state

    async def ask(self, broker: BrokerImage, request: Message) -> Any:
        """The response of a broker at its registered address."""
        if not self._sends_epochs:
            messages.without_epochs(request)
        end = self._peers.endpoint_of(broker.endpoints)
        assert end is not None, "a broker registers with an endpoint"
        # By address, since this broker's own image may lag behind.
        return await self._peers.ask_at(end.host, end.port, request, REQUEST_TIMEOUT_S)

    def note_failures(
        self, broker: BrokerImage, topics: Iterable[LeaderAndIsrTopic], response: Any
    ) -> None:
        """Note replicas that the broker cannot open, or can open again."""
        names = {topic.topic_id: topic.topic_name for topic in topics}
        failed = {
            (names[topic.topic_id], row.partition_index)
            for topic in response.topics
            for row in topic.partition_errors
            if row.error_code == ErrorCode.KAFKA_STORAGE_ERROR and topic.topic_id in names
        }
        if failed:
            self._when_offline(broker, failed)

    def note_ends(
        self, broker: BrokerImage, topics: Sequence[LeaderAndIsrTopic], response: Any
    ) -> None:
        """Note the log end offsets in the broker's response, if there are any."""
        rows = (row for topic in response.topics for row in topic.partition_errors)
        if any(row.log_end_offset >= 0 for row in rows):
            self._when_ended(broker, topics, response)

    # ---- brokers ----

    def follow(self, brokers: Iterable[BrokerImage]) -> None:
        """Set the live brokers: channels to others are closed, and new brokers get everything."""
        alive = {broker.node_id: broker for broker in brokers}
        for node, channel in list(self._channels.items()):
            if node not in alive or alive[node].epoch != channel.broker.epoch:
                channel.close()
                del self._channels[node]
        for node, broker in alive.items():
            if node in self._channels:
                self._channels[node].broker = broker
                continue
            self._channels[node] = Channel(self, broker)
            news = _Changes()
            news.full = True
            news.stops = self._deletions(node)
            self._channels[node].send(news)

    def _deletions(self, node: int) -> dict[tuple[TopicId, int], bool]:
        return {
            (topic, index): True
            for topic, replicas in self.state.deletions.items()
            for index, brokers in replicas.items()
            if node in brokers
        }

    def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    # ---- changes ----

    def send_brokers(self) -> None:
        """Send the live brokers, which have changed."""
        for channel in self._channels.values():
            news = _Changes()
            news.metadata_due = True
            channel.send(news)

    def send_partitions(
        self, partitions: Iterable[tuple[str, int]], *, replicas: bool = True
    ) -> None:
        """Send changed partitions. ``replicas``: the brokers with replicas of them must be
        notified, too.
        """
        found = set(partitions)
        recipients: dict[int, set[tuple[str, int]]] = {}
        for name, index in found if replicas else ():
            image = self.state.partition(name, index)
            for node in () if image is None else image.replicas:
                recipients.setdefault(node, set()).add((name, index))
        for node, channel in self._channels.items():
            news = _Changes()
            news.metadata = found
            news.leaderships = recipients.get(node, set())
            channel.send(news)

    def send_state(self, topic: str, index: int) -> None:
        """Send the state of a partition to its leader, which does not know it."""
        image = self.state.partition(topic, index)
        channel = None if image is None else self._channels.get(image.leader)
        if channel is not None:
            news = _Changes()
            news.leaderships = {(topic, index)}
            channel.send(news)

    def send_deletion(self, topic: TopicId, count: int) -> None:
        """Send the deletion of a topic."""
        for channel in self._channels.values():
            news = _Changes()
            news.deleted = {topic: count}
            channel.send(news)

    def send_stop(self, topic: TopicId, index: int, nodes: Iterable[int], *, delete: bool) -> None:
        """Send that replicas must stop."""
        for node in nodes:
            channel = self._channels.get(node)
            if channel is not None:
                news = _Changes()
                news.stops = {(topic, index): delete}
                channel.send(news)

    def when_answered(self, nodes: Iterable[int] | None = None) -> list[asyncio.Future[None]]:
        """For each live broker, or each live one of ``nodes``, a future that is done when it has
        answered everything so far.
        """
        requested = self._channels.keys() if nodes is None else nodes
        return list(self.when_answered_by(requested).values())

    def when_answered_by(self, nodes: Iterable[int]) -> dict[int, asyncio.Future[None]]:
        """The same futures by broker id, for the live ones of these brokers."""
        found = self._channels
        return {node: found[node].when_answered() for node in nodes if node in found}


def _pieces(
    state: ControllerState, partitions: set[tuple[str, int]], *, everything: bool
) -> Iterator[tuple[str, Sequence[int]]]:
    """Some partitions, or all, by topic, in pieces."""
    if everything:
        yield from state.pieces(list(state.topics))
        return
    found: dict[str, list[int]] = {}
    for name, index in sorted(partitions):
        found.setdefault(name, []).append(index)
    for name, indexes in found.items():
        for first in range(0, len(indexes), PIECE):
            yield name, indexes[first : first + PIECE]


def _add(topics: list[T], topic: T | None) -> None:
    """Add a piece. Pieces of one topic are joined."""
    if topic is None:
        return
    if topics and topics[-1].topic_id == topic.topic_id:
        topics[-1].partition_states += topic.partition_states
    else:
        topics.append(topic)


def _error_of(response: Any) -> str | None:
    code = response.error_code
    return None if code == ErrorCode.NONE else f"it answers with error {code}"
