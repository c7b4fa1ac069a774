"""Executes a controller's decisions, one at a time. Each decision is written to the store, applied,
and sent to brokers.

state/controller makes the decisions; controller.py and other files of this folder trigger them.
After a failed write it is not known what the store contains, so everything is read again.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kstore.broker.coordination.store import StoreClosedError, StoreError, Watch
from kstore.broker.runtime.controller.channels import Channels
from kstore.broker.runtime.controller.settings import (
    MIN_INSYNC_REPLICAS,
    keep_min_isr,
    read_settings,
)
from kstore.broker.runtime.controller.store import ControllerStore, DeposedError, Found
from kstore.broker.runtime.slices import Slices
from kstore.broker.state.controller import events
from kstore.broker.state.controller.state import (
    ControllerState,
    PartitionChange,
    TopicId,
)
from kstore.broker.state.metadata.topic_rules import TopicError
from kstore.errors import ErrorCode, KafkaError, error_for

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.peers.peers import Peers
    from kstore.broker.state.metadata.image import BrokerImage
    from kstore.broker.state.work import Work
    from kstore.protocol.controller.broker_requests import LeaderAndIsrTopic

__all__ = ["UNCLEAN_ELECTION", "Decisions"]

LOGGER = logging.getLogger("kstore.controller")
AWAY_RETRY_S = 0.5
AWAY = "the coordination store can't be reached now: nothing was changed; try again"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
T = TypeVar("T")


class Decisions(ABC):
    """The decisions of one controller epoch. All methods run on the broker's loop."""

    def __init__(
        self,
        node: Node,
        store: Store,
        peers: Peers,
        controller_epoch: int,
        epoch_version: int,
        keep_promise: Callable[[], Awaitable[None]],
    ) -> None:
        """``epoch_version`` is the version of /controller_epoch, which every write checks;
        ``keep_promise`` is awaited before any election: see membership/outage.py.
        """
        self.node_id = node.node_id
        self.epoch = controller_epoch
        self.state = ControllerState()
        self.config = node.config
        self.coordination = store
        self.channels = Channels(self, peers, sends_epochs=node.config.sends_epochs)
        self.store = ControllerStore(store, controller_epoch, epoch_version)
        self._epoch_version = epoch_version
        self.kept_away: frozenset[int] = frozenset()
        """Registered brokers that are too old to take part."""
        self.brokers_changed = asyncio.Event()
        """Set to read the list of brokers again."""
        self.keep_promise = keep_promise
        self._one_at_a_time = asyncio.Lock()
        self.generation = 0
        """How often everything was read from the store."""
        self._node = node
        self._stale = True
        self._over: str | None = None
        self._watches: list[Watch] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Stop. Unfinished changes are left to the next controller."""
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
        """Make no more decisions, since another controller is elected or this broker's session is
        over. ClusterMember handles the election, which it sees in the store.
        """
        if self._over is None:
            LOGGER.info("this broker is no longer controller, epoch %d: %s", self.epoch, why)
            self._over = why
            self.channels.close()

    @property
    def active(self) -> bool:
        """Whether this controller makes decisions: it is not closed, and does not know of a later
        controller.
        """
        return self._over is None

    def gauges(self) -> Work[dict[str, int]]:
        """Metrics of the controller."""
        count = offline = not_preferred = 0
        for name, piece in self.state.pieces(list(self.state.topics)):
            topic = self.state.topics.get(name)
            for each in () if topic is None else topic.partitions[piece.start : piece.stop]:
                count += 1
                offline += each.leader < 0
                not_preferred += each.leader != each.replicas[0]
            yield
        return {
            "controller_epoch": self.epoch,
            "controller_live_brokers": len(self.state.brokers),
            "controller_partitions": count,
            "controller_offline_partitions": offline,
            "controller_not_preferred_leaders": not_preferred,
        }

    def spawn(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a background task that ends with the controller."""
        task = asyncio.get_running_loop().create_task(self._guarded(work, args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> None:
        try:
            await work(*args)
        except KafkaError as problem:
            if self.active:
                LOGGER.warning("the controller could not finish a task: %s", problem)
        except Exception:
            LOGGER.exception("a task of the controller failed")

    async def _load(self) -> None:
        """Apply the store's contents, and restart all channels."""
        await self.keep_promise()
        self.store = ControllerStore(self.coordination, self.epoch, self._epoch_version)
        found: Found = await self.in_store(self.store.load)
        for name in found.half_deleted:
            await self.in_store(self.store.remove_topic_nodes, name)
        unclean = await self.in_store(self.store.unclean_shutdowns, found.brokers)
        self.state = _state_of(found, self.state.leaving, self.config[UNCLEAN_ELECTION])
        self.state = self.state.with_brokers(self.admit(found.brokers))
        self.state = await self.with_settings(self.state)
        self._stale = False
        self.generation += 1
        self.channels.close()
        changes = await self.changes(
            self.state.topics, written=found.written, unclean=frozenset(unclean)
        )
        await self._write(changes)
        self.state = self.state.with_changes(changes)
        if unclean:
            await self.in_store(self.store.forget_shutdowns, unclean)
        self.channels.follow(self.state.brokers.values())
        self.loaded(found)

    def admit(self, registered: Mapping[int, BrokerImage]) -> dict[int, BrokerImage]:
        """The brokers that may take part in the cluster. The others are reported to the
        operator.
        """
        admitted = self.state.admitted(registered)
        kept_away = frozenset(registered.keys() - admitted.keys())
        if kept_away - self.kept_away:
            LOGGER.error(
                "brokers %s cannot take part in the cluster while %s shrinks, because their version"
                " does not support contractions: upgrade them",
                sorted(kept_away), ", ".join(sorted(self.state.contractions)),
            )  # fmt: skip
        self.kept_away = kept_away
        return admitted

    async def with_settings(self, state: ControllerState) -> ControllerState:
        """The state with the current settings of the whole cluster."""
        settings = await self.in_store(read_settings, self.coordination)
        own: int = self.config[MIN_INSYNC_REPLICAS]
        min_isr = own if settings.min_isr is None else settings.min_isr
        state = state._replace(elr_level=settings.elr_level, min_isr=min_isr)
        state = state.with_writes({"": settings.writes})
        if settings.min_isr is None and state.keeps_elr:
            await self.in_store(keep_min_isr, self.coordination, min_isr)
        return state

    async def read_settings(self, touched: Collection[int]) -> set[str]:
        """Read settings before an election. If min.insync.replicas was lowered, a leader may have
        advanced the high watermark before this controller knows the new value, even if it is raised
        again by now. Then eligible replicas that may not have all records are no longer eligible.

        Returns the topics whose settings have changed. The caller must decide about them, too:
        afterwards the state no longer shows the change.
        """
        known = self.state
        self.state = await self.with_settings(known)
        changed = set() if self.state == known else set(known.topics)
        concerned = {
            name
            for name, _, partition in self.state.partitions()
            if partition.elr and not set(partition.replicas).isdisjoint(touched)
        }
        return changed.union(await self.read_configs_of(concerned))

    async def read_configs_of(self, names: set[str]) -> list[str]:
        """Apply the settings of topics. Returns the topics whose settings have changed."""
        found: dict[str, Mapping[str, str]] = {}
        found_writes: dict[str, int] = {}
        for name in names & self.state.topics.keys() if "" not in names else self.state.topics:
            configs, writes = await self.in_store(self.store.topic_configs, name)
            known = self.state.topics[name].configs, self.state.setting_writes.get(name)
            if (configs, writes) != known:
                found[name], found_writes[name] = configs, writes
        if not found:
            return []
        topics = [self.state.topics[name]._replace(configs=found[name]) for name in found]
        self.state = self.state.with_topics(*topics).with_writes(found_writes)
        return list(found)

    # ---- one decision at a time ----

    async def exclusively(self, step: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run a step that reads the state, decides, and commits. No other step runs meanwhile. It
        continues if its caller is cancelled, because a write must be applied.

        Raises KafkaError: NOT_CONTROLLER if this controller has ended. REQUEST_TIMED_OUT if the
        store failed, so that the change may or may not happen; while the store is unavailable, at
        once.
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

    async def in_the_end(self, step: Callable[..., Awaitable[None]], *args: Any) -> None:
        """As `exclusively`, but waits until the store can be reached."""
        while True:
            try:
                return await self.exclusively(step, *args)
            except KafkaError:
                if not (self.coordination.away and self.active):
                    raise
            await asyncio.sleep(AWAY_RETRY_S)

    def _step_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the caller gets the error, if it still waits

    async def _run_alone(self, step: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
        async with self._one_at_a_time:
            if not self.active:
                raise error_for(ErrorCode.NOT_CONTROLLER, f"it ended: {self._over}")
            if self.coordination.away:
                raise error_for(ErrorCode.REQUEST_TIMED_OUT, AWAY)
            try:
                if self._stale:
                    await self._load()
                return await step(*args)
            except (DeposedError, StoreClosedError) as problem:
                self.deposed(str(problem))
                raise error_for(ErrorCode.NOT_CONTROLLER, str(problem)) from problem
            except StoreError as problem:
                self.read_anew()
                LOGGER.warning("a write of the controller failed: %s", problem)
                raise error_for(ErrorCode.REQUEST_TIMED_OUT, str(problem)) from problem
            except (KafkaError, TopicError):
                raise  # a refusal, before anything was written
            except Exception:
                self.read_anew()  # a defect: what it has changed is not known
                raise

    @abstractmethod
    def loaded(self, found: Found) -> None:
        """Called when everything, including expansions and contractions, was read from the
        store.
        """

    def read_anew(self) -> None:
        """Read the store again, since its state is not known."""
        self._stale = True

    async def commit(self, changes: Sequence[PartitionChange]) -> None:
        """Write changes, apply them, and notify brokers. Only within `exclusively`."""
        if not changes:
            return
        before = self.state.topics
        ids = {change.topic: TopicId(change.topic, before[change.topic].topic_id)
               for change in changes}  # fmt: skip
        await self._write(changes)
        self.state = self.state.with_changes(changes)
        for change in changes:
            if change.dropped:
                self.channels.send_stop(
                    ids[change.topic], change.partition, change.dropped, delete=True
                )
        notified = [
            (change.topic, change.partition) for change in changes if change.notify_replicas
        ]
        silent = [
            (change.topic, change.partition) for change in changes if not change.notify_replicas
        ]
        if notified:
            self.channels.send_partitions(notified)
        if silent:
            self.channels.send_partitions(silent, replicas=False)

    async def _write(self, changes: Sequence[PartitionChange]) -> None:
        if changes:
            await self.in_store(self.store.write_changes, self.state, changes)

    async def in_store(self, call: Callable[..., T], *args: Any) -> T:
        """Run a blocking call to the store in its thread."""
        result: T = await self._node.run_blocking(lambda: call(*args))
        return result

    async def changes(
        self,
        topics: Iterable[str],
        reborn: Collection[int] = (),
        written: Mapping[tuple[str, int], int] = events.NOT_READ,
        unclean: frozenset[int] = frozenset(),
    ) -> list[PartitionChange]:
        """The changes that the live brokers require. They are computed in pieces, and other work on
        the loop runs in between.
        """
        changes: list[PartitionChange] = []
        slices = Slices()
        for name, indexes in self.state.pieces(list(topics)):
            changes += events.after_brokers_changed(
                self.state, name, indexes, reborn, written, unclean
            )
            await slices.breathe()
        return changes

    # ---- answers of brokers ----

    def replicas_failed(self, broker: BrokerImage, failed: set[tuple[str, int]]) -> None:
        """Called when a broker cannot open replicas. For these it counts as dead until it
        restarts.
        """
        self.spawn(self.in_the_end, self._take_failed, broker, failed)

    async def _take_failed(self, broker: BrokerImage, failed: set[tuple[str, int]]) -> None:
        known = self.state.brokers.get(broker.node_id)
        if known is None or known.epoch != broker.epoch:
            return
        if failed <= self.state.offline.get(broker.node_id, frozenset()):
            return
        changed = await self.read_settings({broker.node_id})
        self.state = self.state.with_offline(broker.node_id, failed)
        names = changed.union(name for name, _ in failed) & self.state.topics.keys()
        await self.commit(await self.changes(names))
        self.channels.send_partitions(failed, replicas=False)

    @abstractmethod
    def logs_ended(
        self, broker: BrokerImage, requested: Sequence[LeaderAndIsrTopic], response: Any
    ) -> None:
        """Called when a broker has reported where logs end."""

    def replicas_deleted(self, node: int, deleted: list[tuple[TopicId, int]]) -> None:
        """Called when a broker has deleted replicas."""
        self.spawn(self.in_the_end, self._take_deleted, node, deleted)

    async def _take_deleted(self, node: int, deleted: list[tuple[TopicId, int]]) -> None:
        left = self.state.without_deleted(node, deleted)
        if left:
            await self.in_store(self.store.write_deletions, self.state, left)
            self.state = self.state.with_deletions_left(left)


def _state_of(found: Found, leaving: Mapping[int, int], allow_unclean: bool) -> ControllerState:
    state = ControllerState(
        leaving=leaving,
        expansions={each.topic.name: each for each in found.expansions},
        contractions={each.topic.name: each for each in found.contractions},
        deletions=found.deletions,
        partition_epoch=found.partition_epoch,
        allow_unclean=allow_unclean,
    )
    return state.with_topics(*found.topics).with_writes(found.setting_writes)
