"""The controller: it elects the leaders of all partitions and notifies the brokers.

This file follows events in the cluster, and answers brokers and clients. decisions.py executes
decisions, topics.py and growth.py change whole topics, moves.py handles requested elections and
reassignments.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from kstore.broker.coordination import config_nodes, znodes
from kstore.broker.coordination.partition_nodes import RECOVERING
from kstore.broker.coordination.store import WatchEvent
from kstore.broker.runtime.controller.decisions import UNCLEAN_ELECTION, Decisions
from kstore.broker.runtime.controller.doubts import ControllerDoubts
from kstore.broker.runtime.controller.growth import ControllerGrowth
from kstore.broker.runtime.controller.moves import ControllerMoves, Ongoing
from kstore.broker.runtime.controller.shrinking import ControllerShrinking
from kstore.broker.runtime.controller.topics import ControllerTopics, answered
from kstore.broker.runtime.metadata.features import FEATURE_NODE
from kstore.broker.state.controller import events
from kstore.broker.state.controller.state import PartitionChange
from kstore.errors import ErrorCode, KafkaError, error_for
from kstore.protocol.controller.broker_requests import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrPartition,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.controller.store import Found
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.peers.peers import Peers
    from kstore.broker.state.controller.reassignment import Refusal
    from kstore.broker.state.metadata.image import BrokerImage, TopicImage
    from kstore.broker.state.metadata.topic_rules import NewPartitions, NewTopic
    from kstore.broker.state.work import Work
    from kstore.protocol.controller.broker_requests import LeaderAndIsrTopic

__all__ = ["Controller"]

LOGGER = logging.getLogger("kstore.controller")
RETRY_S = 0.1
AWAY_RETRY_S = 0.5
SETTINGS_S = 1.0
HANDED_OVER_S = 2.0
"""How long a controlled shutdown waits for brokers to receive their new leaders and followers."""
T = TypeVar("T")


class Controller(Decisions):
    """One controller epoch. All methods run on the broker's loop."""

    def __init__(
        self,
        node: Node,
        store: Store,
        peers: Peers,
        controller_epoch: int,
        epoch_version: int,
        keep_promise: Callable[[], Awaitable[None]],
    ) -> None:
        """See Decisions."""
        super().__init__(node, store, peers, controller_epoch, epoch_version, keep_promise)
        self.topics = ControllerTopics(self)
        self.growth = ControllerGrowth(self, node)
        self.shrinking = ControllerShrinking(self, node)
        self.moves = ControllerMoves(self)
        self.doubts = ControllerDoubts(self, node.now_ms)
        self._changed_configs: set[str] = set()
        self._changed_cluster = False

    # ---- start and end ----

    async def start(self) -> None:
        """Read everything, elect leaders for partitions without one, and begin to notify brokers.
        Raises StoreError if the store fails, or if another controller was elected.
        """
        await self.in_store(self._watch)
        async with self._one_at_a_time:
            await self._load()
        self.spawn(self._follow)
        self.spawn(self._follow_settings)
        self.spawn(self.moves.balance_leaders)
        self.spawn(self.shrinking.follow_retired)

    def gauges(self) -> Work[dict[str, int]]:
        """Metrics of the controller."""
        found = yield from super().gauges()
        return found | {
            "controller_expanding_topics": len(self.state.expansions),
            "controller_expansions_rolled_back": self.growth.rolled_back,
            "controller_last_expansion_ms": self.growth.last_ms,
            "controller_shrinking_topics": len(self.state.contractions),
            "controller_contractions_rolled_back": self.shrinking.rolled_back,
        }

    def loaded(self, found: Found) -> None:
        """Continue unfinished changes."""
        for expansion in found.expansions:
            self.spawn(self.growth.finish, expansion.topic.name)
        for contraction in found.contractions:
            self.spawn(self.shrinking.finish, contraction.topic.name)

    def logs_ended(
        self, broker: BrokerImage, requested: Sequence[LeaderAndIsrTopic], response: Any
    ) -> None:
        """A broker has answered where logs end."""
        self.doubts.on_roles(broker, requested, response)

    def read_anew(self) -> None:
        """Read the store again, since its state is not known. The task that follows the brokers
        does that first.
        """
        super().read_anew()
        self.brokers_changed.set()

    # ---- brokers ----

    def _watch(self) -> None:
        store = self.coordination
        self._watches = [
            store.watch(znodes.BROKER_IDS, self._on_watch),
            store.watch(config_nodes.TOPIC_CONFIGS, self._on_watch),
            store.watch(znodes.LOG_DIR_EVENTS, self._on_watch),
            store.watch(config_nodes.BROKER_CONFIGS, self._on_watch),
            store.watch(FEATURE_NODE, self._on_watch),
        ]

    def _on_watch(self, event: WatchEvent) -> None:
        """Runs on a thread of the store."""
        with suppress(RuntimeError):  # the loop is closed
            self._node.loop.call_soon_threadsafe(self._note, event.path)

    def _note(self, path: str) -> None:
        if path.startswith(config_nodes.TOPIC_CONFIGS):
            self._changed_configs.add(path.removeprefix(config_nodes.TOPIC_CONFIGS).strip("/"))
        self._changed_cluster |= path.startswith((config_nodes.BROKER_CONFIGS, FEATURE_NODE))
        self.brokers_changed.set()

    async def _follow(self) -> None:
        self.brokers_changed.set()
        while self.active:
            await self.brokers_changed.wait()
            self.brokers_changed.clear()
            try:
                await self.exclusively(self._take_brokers)
                await self._take_configs()
                await self.exclusively(self._take_failed_log_dirs)
            except KafkaError as problem:
                if not self.active:
                    return
                away = self.coordination.away
                if not away:
                    LOGGER.info("the controller reads the list of brokers again: %s", problem)
                await asyncio.sleep(AWAY_RETRY_S if away else RETRY_S)
                self.brokers_changed.set()

    async def _take_brokers(self) -> None:
        await self.keep_promise()
        registered = self.admit(await self.in_store(self.store.brokers))
        difference = self.state.compare(registered)
        if not difference.changed:
            return
        shut_down = await self.in_store(self.store.unclean_shutdowns, registered)
        touched = difference.left | difference.joined
        same = registered.keys() - touched
        self.state = self.state.with_brokers(registered).without_offline(touched)
        await self.read_settings(touched)
        changes = await self.changes(
            self.state.topics, reborn=difference.left, unclean=frozenset(shut_down.keys() - same)
        )
        await self.commit(changes)
        self.channels.follow(registered.values())
        self.channels.send_brokers()
        self.channels.send_partitions(
            [
                (name, index)
                for name, index, partition in self.state.partitions()
                if not touched.isdisjoint(partition.replicas)
            ],
            replicas=False,
        )
        if shut_down:
            await self.in_store(self.store.forget_shutdowns, shut_down)

    async def _take_configs(self) -> None:
        """Apply changed settings of topics. A partition without a leader may now allow an unclean
        election, or other replicas may be eligible.
        """
        if self._changed_configs:
            await self.exclusively(self._take_configs_of)
        if self._changed_cluster:
            await self.exclusively(self._take_cluster)

    async def _take_cluster(self) -> None:
        self._changed_cluster = False
        known = self.state
        self.state = await self.with_settings(known)
        if self.state != known:
            await self.commit(await self.changes(self.state.topics))

    async def _take_configs_of(self) -> None:
        names, self._changed_configs = self._changed_configs, set()
        await self.commit(await self.changes(await self.read_configs_of(names)))

    async def _take_failed_log_dirs(self) -> None:
        """Send the roles of brokers with failed log dirs again. Their responses show which replicas
        they cannot serve.
        """
        brokers = await self.in_store(self.store.failed_log_dirs)
        if brokers:
            self.channels.send_partitions(
                [
                    (name, index)
                    for name, index, partition in self.state.partitions()
                    if not brokers.isdisjoint(partition.replicas)
                ]
            )

    async def _follow_settings(self) -> None:
        """Follow whether unclean elections are allowed for all topics, which is a dynamic
        setting.
        """
        while self.active:
            await asyncio.sleep(SETTINGS_S)
            if self.config[UNCLEAN_ELECTION] != self.state.allow_unclean:
                with suppress(KafkaError):  # the next check tries again
                    await self.exclusively(self._take_settings)

    async def _take_settings(self) -> None:
        self.state = self.state._replace(allow_unclean=self.config[UNCLEAN_ELECTION])
        await self.commit(await self.changes(self.state.topics))

    # ---- requests of leaders and leaving brokers ----

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Apply the ISRs that a leader proposes. All of a request are in one write."""
        try:
            return await self.exclusively(self._alter, request)
        except KafkaError as problem:
            return AlterPartitionResponse(error_code=problem.code)

    async def _alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        known = self.state.brokers.get(request.broker_id)
        if known is None or known.epoch != request.broker_epoch:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        answers: list[tuple[AlteredTopic, str, AlteredPartition]] = []
        changes: list[PartitionChange] = []
        response = AlterPartitionResponse()
        for requested in request.topics:
            altered = AlteredTopic(topic_id=requested.topic_id)
            response.topics.append(altered)
            topic = self.state.image.topic_by_id(requested.topic_id)
            for row in requested.partitions:
                answer = AlteredPartition(partition_index=row.partition_index)
                altered.partitions.append(answer)
                if topic is None:
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                    continue
                result = events.alter_partition(
                    self.state, request.broker_id, topic.name, row.partition_index, _proposal(row)
                )
                answer.error_code = result.error_code
                answers.append((altered, topic.name, answer))
                if result.change is not None:
                    changes.append(result.change)
        await self.commit(changes)
        for _, name, answer in answers:
            self._fill(name, answer)
        return response

    def _fill(self, topic: str, answer: AlteredPartition) -> None:
        """Fill in the current state. A leader that was refused for an old version also gets it from
        its channel again.
        """
        partition = self.state.partition(topic, answer.partition_index)
        if partition is None:
            return
        answer.leader_id = partition.leader
        answer.leader_epoch = partition.leader_epoch
        answer.isr = list(partition.isr)
        answer.leader_recovery_state = int(partition.recovering)
        answer.partition_epoch = partition.state_version
        if answer.error_code == ErrorCode.INVALID_UPDATE_VERSION:
            self.channels.send_state(topic, answer.partition_index)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move the leadership of a broker's partitions to other brokers. Returns the partitions
        that it still leads although another replica is alive. Raises KafkaError: STALE_BROKER_EPOCH
        for an earlier registration.

        The live brokers know the new leaders before this returns, unless they take long. So clients
        find the new leaders ready.
        """
        left = await self.exclusively(self._shut_down, broker_id, broker_epoch)
        waited_for = self.channels.when_answered()
        if waited_for:
            await asyncio.wait(waited_for, timeout=HANDED_OVER_S)
        return left

    async def _shut_down(self, node: int, epoch: int) -> list[TopicPartition]:
        known = self.state.brokers.get(node)
        if known is None or known.epoch != epoch:
            raise error_for(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {node} is not registered with epoch {epoch}"
            )
        await self.read_settings({node})
        self.state = self.state.with_leaving(node, epoch)
        await self.commit(await self.changes(self.state.topics))
        state = self.state
        able = state.brokers.keys() - state.leaving.keys()
        return [
            TopicPartition(name, index)
            for name, index in events.led_by(state, node)
            if not able.isdisjoint(state.topics[name].partitions[index].replicas)
        ]

    # ---- topics: topics.py, growth.py ----

    async def create_topic(self, new: NewTopic, *, validate_only: bool = False) -> TopicImage:
        """Create a topic and return its image. With ``validate_only`` nothing is created. Raises
        TopicError.
        """
        return await self.topics.create(new, validate_only=validate_only)

    async def add_partitions(self, new: NewPartitions, *, validate_only: bool = False) -> None:
        """Expand a topic (KIP-253), or contract it if requested. Returns when the new partitions
        exist, or the contraction is decided. Raises TopicError.
        """
        if new.may_shrink and await answered(self.exclusively(self._is_smaller, new)):
            await self.shrinking.shrink(new, validate_only=validate_only)
            return
        await self.growth.add_partitions(new, validate_only=validate_only)

    async def _is_smaller(self, new: NewPartitions) -> bool:
        """Whether the request is for a contraction. This is checked once the state is known: a new
        controller may not have read it yet.
        """
        topic = self.state.topics.get(new.name)
        return topic is not None and new.total_count < len(topic.partitions)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. Returns when the live brokers have deleted its logs. Raises
        TopicError.
        """
        await self.topics.delete(name)
        self.spawn(self.doubts.forget)

    # ---- elections and reassignments: moves.py ----

    async def elect_leaders(
        self, election_type: int, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, Refusal | None]:
        """Elect preferred leaders (0), or any leader for partitions without one (1). None means all
        partitions that need an election. Returns for each partition None, or why no leader was
        elected. Raises KafkaError.
        """
        elected = await self.moves.elect_leaders(election_type, partitions)
        self.spawn(self.doubts.forget)
        return elected

    async def alter_reassignments(
        self,
        requested: Sequence[tuple[TopicPartition, Sequence[int] | None]],
        *,
        allow_factor_change: bool = True,
    ) -> dict[TopicPartition, Refusal | None]:
        """Begin reassignments, or cancel unfinished ones (None). Returns for each partition None,
        or why it was refused. Raises KafkaError.
        """
        return await self.moves.alter_reassignments(
            requested, allow_factor_change=allow_factor_change
        )

    async def list_reassignments(
        self, requested: Sequence[TopicPartition] | None = None
    ) -> list[Ongoing]:
        """Unfinished reassignments, of these partitions or of all. Raises KafkaError."""
        return await self.moves.list_reassignments(requested)


def _proposal(row: IsrPartition) -> events.Proposal:
    isr = row.new_isr or [each.broker_id for each in row.new_isr_with_epochs]
    epochs = {each.broker_id: each.broker_epoch for each in row.new_isr_with_epochs}
    recovering = row.leader_recovery_state == RECOVERING
    return events.Proposal(row.leader_epoch, row.partition_epoch, tuple(isr), epochs, recovering)
