"""The controller: the one broker that decides who leads which partition, and tells all others.

Decisions are state/controller_events.py's and the files beside it; here they happen: one at a time
they are written to the store, taken over, and told (controller_channels.py). A write that fails
leaves open what the store holds, so everything is read anew then. What concerns whole topics is in
controller_topics.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from kstore.broker.coordination import znodes
from kstore.broker.coordination.store import StoreClosedError, StoreError, Watch, WatchEvent
from kstore.broker.runtime.controller.channels import Channels
from kstore.broker.runtime.controller.moves import ControllerMoves, Ongoing
from kstore.broker.runtime.controller.store import ControllerStore, DeposedError, Found
from kstore.broker.runtime.controller.topics import ControllerTopics
from kstore.broker.runtime.slices import Slices
from kstore.broker.state.controller import events
from kstore.broker.state.controller.state import ControllerState, PartitionChange, TopicId
from kstore.broker.state.metadata.topic_rules import TopicError
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
    from kstore.broker.runtime.broker import Broker
    from kstore.broker.state.controller.reassignment import Refusal
    from kstore.broker.state.metadata.image import BrokerImage, TopicImage
    from kstore.broker.state.metadata.topic_rules import NewPartitions, NewTopic

__all__ = ["Controller"]

LOGGER = logging.getLogger("kstore.controller")
RETRY_S = 0.1
AWAY_RETRY_S = 0.5
SETTINGS_S = 1.0
HANDED_OVER_S = 2.0
"""How long a controlled shutdown waits for brokers to hear whom they lead and follow now."""
AWAY = "the coordination store can't be reached now: nothing was changed; try again"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
T = TypeVar("T")


class Controller:
    """One controller epoch. All methods belong to the broker's loop."""

    def __init__(
        self,
        broker: Broker,
        controller_epoch: int,
        epoch_version: int,
        keep_promise: Callable[[], Awaitable[None]],
    ) -> None:
        """``epoch_version`` is the version of /controller_epoch, without which no write counts;
        ``keep_promise`` is waited for before anybody is elected: see membership/outage.py.
        """
        self.node_id = broker.node_id
        self.epoch = controller_epoch
        self.state = ControllerState()
        self.broker = broker
        self.channels = Channels(self, broker.peers(), tells_epochs=broker.config.tells_epochs)
        self.topics = ControllerTopics(self)
        self.moves = ControllerMoves(self)
        self.store = ControllerStore(broker.store, controller_epoch, epoch_version)
        self._epoch_version = epoch_version
        self._keep_promise = keep_promise
        self._one_at_a_time = asyncio.Lock()
        self.generation = 0
        """How often everything was read from the store."""
        self._stale = True
        self._over: str | None = None
        self._brokers_changed = asyncio.Event()
        self._changed_configs: set[str] = set()
        self._watches: list[Watch] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    # ---- life ----

    async def start(self) -> None:
        """Read everything, see to partitions that have lost their leader, and begin to tell
        brokers. StoreError where the store fails, or another controller was elected.
        """
        await self.in_store(self._watch)
        async with self._one_at_a_time:
            await self._load()
        self.spawn(self._follow)
        self.spawn(self._follow_settings)
        self.spawn(self.moves.balance_leaders)

    async def close(self) -> None:
        """Stop. What is under way is left as it is, for the next controller to finish."""
        self._over = self._over or "it was closed"
        watches, self._watches = self._watches, []
        for watch in watches:
            watch.cancel()
        self.channels.close()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def deposed(self, why: str) -> None:
        """Another controller is elected, or this broker's session is over: nothing is decided any
        more. The election is the member's business, which sees the same in the store.
        """
        if self._over is None:
            LOGGER.info("this broker's controller of epoch %d is over: %s", self.epoch, why)
            self._over = why
            self.channels.close()

    @property
    def active(self) -> bool:
        """Whether it decides: not closed, and no other known to be elected."""
        return self._over is None

    def gauges(self) -> dict[str, int]:
        """What metrics tell of the controller."""
        partitions = [partition for _, _, partition in self.state.partitions()]
        return {
            "controller_epoch": self.epoch,
            "controller_live_brokers": len(self.state.brokers),
            "controller_partitions": len(partitions),
            "controller_offline_partitions": sum(each.leader < 0 for each in partitions),
            "controller_not_preferred_leaders": sum(
                each.leader != each.replicas[0] for each in partitions
            ),
        }

    def spawn(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run something beside everything else; it ends with the controller."""
        task = asyncio.get_running_loop().create_task(self._guarded(work, args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> None:
        try:
            await work(*args)
        except KafkaError as problem:
            if self.active:
                LOGGER.warning("the controller left something undone: %s", problem)
        except Exception:
            LOGGER.exception("a part of the controller failed")

    async def _load(self) -> None:
        """Take over what the store says, and begin all channels anew."""
        await self._keep_promise()
        self.store = ControllerStore(self.broker.store, self.epoch, self._epoch_version)
        found: Found = await self.in_store(self.store.load)
        for name in found.half_deleted:
            await self.in_store(self.store.remove_topic_nodes, name)
        self.state = _state_of(found, self.state.leaving)
        self.state.allow_unclean = self.broker.config[UNCLEAN_ELECTION]
        self._stale = False
        self.generation += 1
        self.channels.close()

        def bounced(topic: str, index: int, node: int) -> bool:
            return found.brokers[node].epoch > found.written[topic, index]

        changes = await self._changes(self.state.topics, bounced)
        await self._write(changes)
        self.state.apply(changes)
        self.channels.follow(self.state.brokers.values())
        for expansion in found.expansions:
            self.spawn(self.topics.finish_expansion, expansion.topic.name)

    # ---- one decision at a time ----

    async def exclusively(self, step: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run a step that reads the state, decides, and commits, while nothing else does. It goes
        on when whoever waits for it is cancelled: what is written has to be taken over.

        KafkaError: NOT_CONTROLLER where this is over; REQUEST_TIMED_OUT where the store failed, and
        what was asked for may or may not happen; the same at once while the store is away.
        """
        task = asyncio.get_running_loop().create_task(self._run_alone(step, args))
        self._tasks.add(task)
        task.add_done_callback(self._step_done)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and not self.active:  # by close
                raise error_for(ErrorCode.NOT_CONTROLLER, f"it ended: {self._over}") from None
            raise

    async def _in_the_end(self, step: Callable[..., Awaitable[None]], *args: Any) -> None:
        """As `exclusively`, once the store can be reached."""
        while True:
            try:
                return await self.exclusively(step, *args)
            except KafkaError:
                if not (self.broker.store.away and self.active):
                    raise
            await asyncio.sleep(AWAY_RETRY_S)

    def _step_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # its waiter has it, if there still is one

    async def _run_alone(self, step: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
        async with self._one_at_a_time:
            if not self.active:
                raise error_for(ErrorCode.NOT_CONTROLLER, f"it ended: {self._over}")
            if self.broker.store.away:
                raise error_for(ErrorCode.REQUEST_TIMED_OUT, AWAY)
            try:
                if self._stale:
                    await self._load()
                return await step(*args)
            except (DeposedError, StoreClosedError) as problem:
                self.deposed(str(problem))
                raise error_for(ErrorCode.NOT_CONTROLLER, str(problem)) from problem
            except StoreError as problem:
                self._read_anew()
                LOGGER.warning("a write of the controller failed: %s", problem)
                raise error_for(ErrorCode.REQUEST_TIMED_OUT, str(problem)) from problem
            except (KafkaError, TopicError):
                raise  # a refusal, before anything was written
            except Exception:
                self._read_anew()  # a defect: nobody knows how far it came
                raise

    def _read_anew(self) -> None:
        """What the store says is not known any more."""
        self._stale = True
        self._brokers_changed.set()  # whoever follows that comes first

    async def commit(self, changes: Sequence[PartitionChange]) -> None:
        """Write changes, take them over, tell whom they concern. Only within `exclusively`."""
        if not changes:
            return
        before = self.state.topics
        ids = {change.topic: TopicId(change.topic, before[change.topic].topic_id)
               for change in changes}  # fmt: skip
        await self._write(changes)
        self.state.apply(changes)
        for change in changes:
            if change.dropped:
                self.channels.tell_stop(
                    ids[change.topic], change.partition, change.dropped, delete=True
                )
        told = [(change.topic, change.partition) for change in changes if change.told]
        silent = [(change.topic, change.partition) for change in changes if not change.told]
        if told:
            self.channels.tell_partitions(told)
        if silent:
            self.channels.tell_partitions(silent, replicas=False)

    async def _write(self, changes: Sequence[PartitionChange]) -> None:
        if changes:
            await self.in_store(self.store.write_changes, self.state, changes)

    async def in_store(self, call: Callable[..., T], *args: Any) -> T:
        """Run a blocking call to the store in the thread for that."""
        result: T = await self.broker.run_blocking(lambda: call(*args))
        return result

    async def _changes(
        self, topics: Iterable[str], bounced: events.Bounced = events.never_bounced
    ) -> list[PartitionChange]:
        """What the live brokers call for, piece by piece, with turns for others in between."""
        changes: list[PartitionChange] = []
        slices = Slices()
        for name, indexes in self.state.pieces(list(topics)):
            changes += events.after_brokers_changed(self.state, name, indexes, bounced)
            await slices.breathe()
        return changes

    # ---- brokers ----

    def _watch(self) -> None:
        store = self.broker.store
        self._watches = [
            store.watch(znodes.BROKER_IDS, self._on_watch),
            store.watch(znodes.TOPIC_CONFIGS, self._on_watch),
        ]

    def _on_watch(self, event: WatchEvent) -> None:
        """Runs on a thread of the store's."""
        with suppress(RuntimeError):  # the loop is closed
            self.broker.loop.call_soon_threadsafe(self._note, event.path)

    def _note(self, path: str) -> None:
        if path.startswith(znodes.TOPIC_CONFIGS):
            self._changed_configs.add(path.removeprefix(znodes.TOPIC_CONFIGS).strip("/"))
        self._brokers_changed.set()

    async def _follow(self) -> None:
        self._brokers_changed.set()
        while self.active:
            await self._brokers_changed.wait()
            self._brokers_changed.clear()
            try:
                await self.exclusively(self._take_brokers)
                await self._take_configs()
            except KafkaError as problem:
                if not self.active:
                    return
                away = self.broker.store.away
                if not away:
                    LOGGER.info("the controller looks again: %s", problem)
                await asyncio.sleep(AWAY_RETRY_S if away else RETRY_S)
                self._brokers_changed.set()

    async def _take_brokers(self) -> None:
        await self._keep_promise()
        registered = await self.in_store(self.store.brokers)
        state = self.state
        difference = state.compare(registered)
        if not difference.changed:
            return
        state.take_brokers(registered)
        state.forget_offline(difference.left | difference.joined)
        changes = await self._changes(
            state.topics, lambda topic, index, node: node in difference.left
        )
        await self.commit(changes)
        self.channels.follow(registered.values())
        self.channels.tell_brokers()
        touched = difference.left | difference.joined
        self.channels.tell_partitions(
            [
                (name, index)
                for name, index, partition in state.partitions()
                if not touched.isdisjoint(partition.replicas)
            ],
            replicas=False,
        )

    async def _take_configs(self) -> None:
        """Topic configs have changed; a leaderless partition may now have any leader."""
        names, self._changed_configs = self._changed_configs, set()
        if names:
            await self.exclusively(self._take_configs_of, names)

    async def _take_configs_of(self, names: set[str]) -> None:
        changed = []
        for name in names & self.state.topics.keys() if "" not in names else self.state.topics:
            configs = await self.in_store(self.store.topic_configs, name)
            topic = self.state.topics[name]
            if configs != topic.configs:
                self.state.put_topics(topic._replace(configs=configs))
                changed.append(name)
        await self.commit(await self._changes(changed))

    async def _follow_settings(self) -> None:
        """Unclean elections may be allowed, or forbidden, for all topics at run time."""
        while self.active:
            await asyncio.sleep(SETTINGS_S)
            if self.broker.config[UNCLEAN_ELECTION] != self.state.allow_unclean:
                with suppress(KafkaError):  # the next look tries again
                    await self.exclusively(self._take_settings)

    async def _take_settings(self) -> None:
        self.state.allow_unclean = self.broker.config[UNCLEAN_ELECTION]
        await self.commit(await self._changes(self.state.topics))

    def replicas_failed(self, broker: BrokerImage, failed: set[tuple[str, int]]) -> None:
        """A broker can't open replicas: for them it counts as dead, until its next life."""
        self.spawn(self._in_the_end, self._take_failed, broker, failed)

    async def _take_failed(self, broker: BrokerImage, failed: set[tuple[str, int]]) -> None:
        known = self.state.brokers.get(broker.node_id)
        if known is None or known.epoch != broker.epoch:
            return
        offline = self.state.offline.setdefault(broker.node_id, set())
        if failed <= offline:
            return
        offline |= failed
        await self.commit(
            await self._changes({name for name, _ in failed} & self.state.topics.keys())
        )
        self.channels.tell_partitions(failed, replicas=False)

    def replicas_deleted(self, node: int, deleted: list[tuple[TopicId, int]]) -> None:
        """A broker has deleted replicas that were to be deleted."""
        self.spawn(self._in_the_end, self._take_deleted, node, deleted)

    async def _take_deleted(self, node: int, deleted: list[tuple[TopicId, int]]) -> None:
        left = self.state.without_deleted(node, deleted)
        if left:
            await self.in_store(self.store.write_deletions, self.state, left)
            self.state.take_deletions(left)

    # ---- what leaders and leaving brokers ask for ----

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Take over ISRs that leaders propose, all of a request in one write."""
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
        for asked in request.topics:
            told = AlteredTopic(topic_id=asked.topic_id)
            response.topics.append(told)
            topic = self.state.image.topic_by_id(asked.topic_id)
            for row in asked.partitions:
                answer = AlteredPartition(partition_index=row.partition_index)
                told.partitions.append(answer)
                if topic is None:
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                    continue
                result = events.alter_partition(
                    self.state, request.broker_id, topic.name, row.partition_index, _proposal(row)
                )
                answer.error_code = result.error_code
                answers.append((told, topic.name, answer))
                if result.change is not None:
                    changes.append(result.change)
        await self.commit(changes)
        for _, name, answer in answers:
            self._fill(name, answer)
        return response

    def _fill(self, topic: str, answer: AlteredPartition) -> None:
        """What holds now; the leader that was refused for an old version is told it once more."""
        partition = self.state.partition(topic, answer.partition_index)
        if partition is None:
            return
        answer.leader_id = partition.leader
        answer.leader_epoch = partition.leader_epoch
        answer.isr = list(partition.isr)
        answer.partition_epoch = partition.state_version
        if answer.error_code == ErrorCode.INVALID_UPDATE_VERSION:
            self.channels.tell_leader(topic, answer.partition_index)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move what a broker leads to others; returns what it still leads though another replica
        is alive. KafkaError: STALE_BROKER_EPOCH for another life of it.

        Live brokers have heard of it before the answer, if they don't take long: clients find the
        new leaders ready.
        """
        left = await self.exclusively(self._shut_down, broker_id, broker_epoch)
        waited_for = self.channels.told()
        if waited_for:
            await asyncio.wait(waited_for, timeout=HANDED_OVER_S)
        return left

    async def _shut_down(self, node: int, epoch: int) -> list[TopicPartition]:
        state = self.state
        known = state.brokers.get(node)
        if known is None or known.epoch != epoch:
            raise error_for(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {node} is not registered with epoch {epoch}"
            )
        state.leaving[node] = epoch
        await self.commit(await self._changes(state.topics))
        able = state.brokers.keys() - state.leaving.keys()
        return [
            TopicPartition(name, index)
            for name, index in events.led_by(state, node)
            if not able.isdisjoint(state.topics[name].partitions[index].replicas)
        ]

    # ---- topics: controller_topics.py ----

    async def create_topic(self, new: NewTopic, *, validate_only: bool = False) -> TopicImage:
        """Make a topic and return its image; TopicError. With validate_only nothing is made."""
        return await self.topics.create(new, validate_only=validate_only)

    async def add_partitions(self, new: NewPartitions, *, validate_only: bool = False) -> None:
        """Let a topic grow (KIP-253); returns when its new partitions are made. TopicError."""
        await self.topics.add_partitions(new, validate_only=validate_only)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic; returns when the live brokers have deleted its logs. TopicError."""
        await self.topics.delete(name)

    # ---- elections and reassignments: controller_moves.py ----

    async def elect_leaders(
        self, election_type: int, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, Refusal | None]:
        """Elect preferred leaders (0), or any for leaderless partitions (1); None asks for all that
        need it. Per partition why none was elected, or None. KafkaError.
        """
        return await self.moves.elect_leaders(election_type, partitions)

    async def alter_reassignments(
        self,
        asked: Sequence[tuple[TopicPartition, Sequence[int] | None]],
        *,
        allow_factor_change: bool = True,
    ) -> dict[TopicPartition, Refusal | None]:
        """Begin reassignments, or cancel those under way (None); per partition why that is refused,
        or None. KafkaError.
        """
        return await self.moves.alter_reassignments(asked, allow_factor_change=allow_factor_change)

    async def list_reassignments(
        self, asked: Sequence[TopicPartition] | None = None
    ) -> list[Ongoing]:
        """Reassignments under way, of all partitions or of these. KafkaError."""
        return await self.moves.list_reassignments(asked)


def _state_of(found: Found, leaving: dict[int, int]) -> ControllerState:
    state = ControllerState()
    state.leaving = dict(leaving)
    state.take_brokers(found.brokers)
    state.put_topics(*found.topics)
    state.partition_epoch = found.partition_epoch
    state.expansions = {each.topic.name: each for each in found.expansions}
    state.deletions = dict(found.deletions)
    return state


def _proposal(row: IsrPartition) -> events.Proposal:
    isr = row.new_isr or [each.broker_id for each in row.new_isr_with_epochs]
    epochs = {each.broker_id: each.broker_epoch for each in row.new_isr_with_epochs}
    return events.Proposal(row.leader_epoch, row.partition_epoch, tuple(isr), epochs)
