"""A controller with a store in memory and brokers that only remember what the controller sent: a
double of compose/broker.Broker and of the brokers at the other end of Peers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from kstore.broker.coordination import registration, znodes
from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.coordination.store import Store, StoreUnavailableError
from kstore.broker.runtime.controller.controller import Controller
from kstore.broker.state.metadata.image import BrokerImage, Endpoint
from kstore.config import BrokerConfig
from kstore.errors import ErrorCode, KafkaError, NetworkError
from kstore.protocol.controller.broker_requests import (
    FULL,
    LeaderAndIsrPartition,
    UpdateMetadataPartition,
)
from kstore.protocol.registry import APIS
from kstore.protocol.schema import Message
from tests.beside.waiting import reached
from tests.plain_messages import Answer, Ask

FIRST_PORT = 1000
LATEST = -1
Place = tuple[str, int]


class Node:
    """One broker at the other end: its registration, and what the controller has sent it."""

    def __init__(self, cluster: Cluster, node_id: int, rack: str | None = None) -> None:
        self.node_id = node_id
        self.rack = rack
        self.cluster = cluster
        self.session: Store | None = None
        self.epoch = -1
        self.mute = False
        """Answers nothing, as one that stands still."""
        self.hangs = False
        """Its log dir hangs: it can delete nothing yet."""
        self.unable: set[Place] = set()
        self.log_ends: dict[Place, tuple[int, int]] = {}
        """The latest leader epoch and the end of logs that are not empty."""
        self.heard: list[Any] = []
        self.hosted: dict[Place, LeaderAndIsrPartition] = {}
        self.counts: dict[str, int] = {}
        self.retired: dict[str, int] = {}
        """From which partition on a topic's take no records; -1: all do."""
        self.leaders: dict[tuple[UUID, int, int], int] = {}
        """Of each topic id, partition and leader epoch that was ever heard of."""
        self.metadata: dict[Place, UpdateMetadataPartition] = {}
        self.deleted: list[tuple[UUID, int]] = []
        self.max_partition_epoch = -1

    def start(self, *, lacks: str = "") -> None:
        """Register as a new process; as a version that lacks a feature."""
        self.session = self.cluster.store.new_session()
        end = Endpoint("PLAINTEXT", "node", FIRST_PORT + self.node_id)
        image = BrokerImage(self.node_id, (end,), self.rack)
        if lacks:
            self.epoch = self._register_as_older(image, lacks)
        else:
            epoch = registration.register(self.session, image, 0)
            assert epoch is not None
            self.epoch = epoch
        self.hosted.clear()
        self.metadata.clear()

    def _register_as_older(self, image: BrokerImage, lacks: str) -> int:
        assert self.session is not None
        said = json.loads(znodes.broker_node(image, 0))
        del said["features"][lacks]
        path = f"{znodes.BROKER_IDS}/{self.node_id}"
        self.session.create(path, json.dumps(said).encode(), ephemeral=True)
        stat = self.session.stat(path)
        assert stat is not None
        return stat.czxid

    def stop(self) -> None:
        """End: the session is over."""
        self.session.close()
        self.session = None

    async def answer(self, request: Any) -> Any:
        """Obey the controller."""
        while self.mute:
            await asyncio.sleep(0.001)
        if self.session is None:
            raise NetworkError("it is not there")
        api = APIS[request.API_KEY]
        asks = {
            "ListOffsets": self._offsets, "OffsetForLeaderEpoch": self._ends,
            "GroupsBehind": self._behind,
        }  # fmt: skip
        if api.name in asks:
            return asks[api.name](request)
        if request.broker_epoch < self.epoch:
            return api.response(error_code=ErrorCode.STALE_BROKER_EPOCH)
        self.heard.append(request)
        tells = {"LeaderAndIsr": self._lead, "StopReplica": self._stop}
        return tells.get(api.name, self._know)(request)

    def _lead(self, request: Any) -> Message:
        told = []
        if request.type == FULL:
            self.hosted.clear()
        for topic in request.topic_states:
            self.counts[topic.topic_name] = topic.partition_count
            self.retired[topic.topic_name] = topic.retired_from
            rows = []
            for state in topic.partition_states:
                place = (topic.topic_name, state.partition_index)
                failed = place in self.unable
                code = ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NONE
                row = {"partition_index": place[1], "error_code": code}
                latest, end = self.log_ends.get(place, (-1, 0))
                refused = state.leader >= 0 and latest > state.leader_epoch
                if refused:
                    row["error_code"] = ErrorCode.FENCED_LEADER_EPOCH
                if refused or state.leader < 0:
                    row |= {"latest_epoch": latest, "log_end_offset": end}
                rows.append(row)
                if refused:
                    self.hosted.pop(place, None)
                    continue
                known = self.hosted.get(place)
                if known is not None:
                    assert state.leader_epoch >= known.leader_epoch, place
                self.hosted[place] = state
                if state.leader >= 0:
                    key = (topic.topic_id, state.partition_index, state.leader_epoch)
                    assert self.leaders.setdefault(key, state.leader) == state.leader, key
            told.append({"topic_id": topic.topic_id, "partition_errors": rows})
        return Answer.LeaderAndIsr(topics=told)

    def _offsets(self, request: Any) -> Message:
        """The log start and end offsets, as the cluster's tests set them; every broker reports
        these.
        """

        def told(topic: str, row: Any) -> dict[str, int]:
            spans = self.cluster.logs.get((topic, row.partition_index), (0, 0))
            offset = spans[row.timestamp == LATEST]
            return {"partition_index": row.partition_index, "offset": offset}

        return Answer.ListOffsets(topics=_each_row(request, "name", told))

    def _ends(self, request: Any) -> Message:
        def told(topic: str, row: Any) -> dict[str, int]:
            _, end = self.cluster.logs.get((topic, row.partition), (0, 0))
            known = {"partition": row.partition, "leader_epoch": row.leader_epoch}
            return known | {"end_offset": end}

        return Answer.OffsetForLeaderEpoch(topics=_each_row(request, "topic", told))

    def _behind(self, request: Any) -> Message:
        """Of the groups, as the cluster's tests set them; of partitions that this broker leads."""
        if self.retired.get(request.topic_name) != request.retired_from:
            return Answer.GroupsBehind(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        led = [
            index
            for (name, index), state in self.hosted.items()
            if name == "__consumer_offsets" and state.leader == self.node_id
        ]
        return Answer.GroupsBehind(partitions=led, groups=self.cluster.behind)

    def _stop(self, request: Any) -> Message:
        code = ErrorCode.REQUEST_TIMED_OUT if self.hangs else ErrorCode.NONE
        rows = []
        for topic in request.topic_states:
            for row in topic.partition_states:
                self.hosted.pop((topic.topic_name, row.partition_index), None)
                if row.delete_partition and not self.hangs:
                    self.deleted.append((topic.topic_id, row.partition_index))
                place = {"topic_name": topic.topic_name, "partition_index": row.partition_index}
                rows.append(place | {"error_code": code})
        return Answer.StopReplica(partition_errors=rows)

    def _know(self, request: Any) -> Message:
        if request.type == FULL:
            self.metadata.clear()
        for topic in request.topic_states:
            self.retired[topic.topic_name] = topic.retired_from
            for place in [each for each in self.metadata if each[0] == topic.topic_name]:
                if 0 <= topic.partition_total <= place[1]:
                    del self.metadata[place]
            for state in topic.partition_states:
                place = (topic.topic_name, state.partition_index)
                if state.leader == -2:
                    self.metadata.pop(place, None)
                else:
                    self.metadata[place] = state
        self.max_partition_epoch = request.max_partition_epoch
        return Answer.UpdateMetadata()

    async def propose(
        self, topic: str, index: int, isr: list[int], *, recovering: bool = False
    ) -> Any:
        """As the leader, propose an ISR, with what this broker knows about the partition."""
        known = self.hosted[topic, index]
        nodes = self.cluster.nodes
        epochs = [{"broker_id": each, "broker_epoch": nodes[each].epoch} for each in isr]
        row = {
            "partition_index": index, "leader_epoch": known.leader_epoch,
            "partition_epoch": known.state_version, "new_isr_with_epochs": epochs,
            "leader_recovery_state": int(recovering),
        }  # fmt: skip
        controller = self.cluster.controller
        topics = [{"topic_id": controller.state.topics[topic].topic_id, "partitions": [row]}]
        me = {"broker_id": self.node_id, "broker_epoch": self.epoch}
        response = await controller.alter_partition(Ask.AlterPartition(**me, topics=topics))
        rows = response.topics and response.topics[0].partitions
        if rows and rows[0].error_code == ErrorCode.NONE:
            known.state_version, known.isr = rows[0].partition_epoch, list(isr)
        return response


def _each_row(request: Any, key: str, told: Callable[[str, Any], Any]) -> list[dict[str, Any]]:
    """The rows of an answer that has those of the request."""
    found = []
    for topic in request.topics:
        name = getattr(topic, key)
        found.append({key: name, "partitions": [told(name, row) for row in topic.partitions]})
    return found


class _Host:
    """What a Controller wants of the broker that it lives on: a Node and its Peers."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.node_id = node_id
        self.config = cluster.config
        self.loop = asyncio.get_running_loop()
        self._cluster = cluster

    def now_ms(self) -> int:
        """The wall clock, as the cluster's tests set it."""
        return self._cluster.now_ms

    async def run_blocking(self, call: Callable[[], Any]) -> Any:
        """In a thread, as the broker does."""
        return await self.loop.run_in_executor(None, call)

    def endpoint_of(self, endpoints: tuple[Endpoint, ...]) -> Endpoint:
        return endpoints[0]

    async def ask_at(self, host: str, port: int, request: Any, timeout_s: float) -> Any:
        """Reach the node at that port."""
        node = self._cluster.nodes[port - FIRST_PORT]
        async with asyncio.timeout(timeout_s):
            return await node.answer(request)


class Cluster:
    """Nodes, one store, and one controller at a time."""

    def __init__(self, node_ids: range, **settings: str) -> None:
        self.store: Store = MemoryStore()
        znodes.prepare(self.store)
        overrides = {"default.replication.factor": "3", "num.partitions": "1"} | settings
        self.config = BrokerConfig.load(None, overrides=overrides)
        self.nodes = {node_id: Node(self, node_id) for node_id in node_ids}
        self.now_ms = 1_000_000
        self.logs: dict[Place, tuple[int, int]] = {}
        """Where logs begin and end; others are empty."""
        self.behind: list[str] = []
        """The groups that have not read what is to retire."""
        self.controller: Controller
        self._sessions: list[Store] = []

    async def start(self) -> Controller:
        """Start all nodes and a controller."""
        for node in self.nodes.values():
            if node.session is None:
                node.start()
        return await self.elect()

    async def elect(self, store: Store | None = None) -> Controller:
        """A new controller, under a new epoch; an earlier one is left as it is."""
        session = store or self.store.new_session()
        if self.store.exists(registration.CONTROLLER):
            self.store.delete(registration.CONTROLLER)
        assert registration.claim_controller(session, 0, 0)
        view = registration.read_view(session)
        host: Any = _Host(self, 0)
        self.controller = Controller(
            host, session, host, view.controller_epoch, view.controller_epoch_version, _nothing
        )
        await self.controller.start()
        return self.controller

    async def settle(self) -> None:
        """Wait until the controller knows the brokers, and the brokers know everything that it
        knows.
        """
        alive = {node.node_id for node in self.nodes.values() if node.session is not None}
        epochs = {node: self.nodes[node].epoch for node in alive}

        def known() -> bool:
            brokers = self.controller.state.brokers
            return {each: image.epoch for each, image in brokers.items()} == epochs

        await reached(known)
        await self.controller.exclusively(_nothing)
        told = self.controller.channels.when_answered()
        if told:
            await asyncio.wait(told)
        await self.controller.exclusively(_nothing)

    def leader(self, topic: str, index: int) -> Node:
        """The node that leads a partition, as the controller has it."""
        return self.nodes[self.controller.state.topics[topic].partitions[index].leader]

    async def close(self) -> None:
        await self.controller.close()
        self.store.close()


async def _nothing() -> None:
    return None


def run(story: Callable[[Cluster], Awaitable[None]], nodes: int = 3, **settings: str) -> None:
    """Tell a story of a cluster that has started, and end the cluster."""

    async def tell() -> None:
        cluster = Cluster(range(nodes), **settings)
        await cluster.start()
        try:
            await story(cluster)
        finally:
            await cluster.close()

    asyncio.run(tell())


async def fail_once(cluster: Cluster) -> None:
    """A write with an unknown outcome."""

    async def step() -> None:
        raise StoreUnavailableError("no answer")

    with pytest.raises(KafkaError) as caught:
        await cluster.controller.exclusively(step)
    assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
