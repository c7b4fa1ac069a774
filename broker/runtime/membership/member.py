"""This broker's membership in a cluster. It registers, takes part in the election of the
controller, and registers again when the coordination store has ended its session.

controller.py makes the controller's decisions; replica_manager.py executes them on this broker.
Calls to the store run in the broker's store thread. Watches of the store run on another thread, and
only set an event on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from kstore.broker.coordination import registration, znodes
from kstore.broker.coordination.registration import CONTROLLER, ClusterView
from kstore.broker.coordination.store import (
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
    WatchEvent,
)
from kstore.broker.runtime.imports import import_modules
from kstore.broker.runtime.membership.outage import Outage
from kstore.broker.runtime.membership.soon_needed import SOON_NEEDED
from kstore.broker.runtime.membership.suspected_brokers import SuspectedBrokers
from kstore.broker.state.metadata.image import BrokerImage
from kstore.errors import KafkaError, NetworkError, error_for
from kstore.protocol.controller.broker_requests import ControlledShutdownRequest

if TYPE_CHECKING:
    from kstore.broker.coordination.renewable import RenewableStore
    from kstore.broker.runtime.controller.controller import Controller
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.peers.peers import Peers
    from kstore.broker.state.work import Work
    from kstore.protocol.schema import Message

__all__ = ["ClusterMember"]

PULSE = 1 / 8
"""How often a broker checks the clock, as a share of the time after which its session ends."""
RETRY_S = 0.1
AFTER_DEFECT_S = 1.0
EXPIRY_S = 5.0
"""How much longer than its timeout an ensemble may take to end a session."""
PATIENCE_S = 10.0
"""How often the broker reports what its start waits for."""
SHUTDOWN_S = 5.0
"""How long a stop waits until other brokers lead this broker's partitions."""
NO_PROGRESS_S = 0.5
"""The same if no partition moves: the other brokers may be stopping, too."""
log = logging.getLogger("kstore.broker")


class Replicas(Protocol):
    """The replicas on this broker."""

    @property
    def ready(self) -> asyncio.Event:
        """Set once a controller has sent all replicas of this broker, and all metadata."""

    def gauges(self) -> Work[dict[str, int]]:
        """Metrics of the partitions that this broker leads."""


class ClusterMember:
    """One broker's membership, from `start` to `close`."""

    def __init__(
        self,
        node: Node,
        myself: BrokerImage,
        store: RenewableStore,
        metadata: MetadataCache,
        peers: Lazy[Peers],
        replicas: Callable[[], Replicas],
        ended_epoch: int = -1,
    ) -> None:
        """``myself`` is what this broker registers. ``replicas`` must exist before `start`."""
        self.node_id = node.node_id
        self.broker_epoch = -1
        """The czxid of this broker's registration. Without a registration, it is larger than every
        earlier one, so that requests for an earlier registration are refused.
        """
        self.ended_epoch = ended_epoch
        """The broker epoch of the last clean run; after registration, that of this process."""
        self.registered = False
        self.controller_id = -1
        self.controller_epoch = 0
        """The epoch of the last known controller."""
        self.controller: Controller | None = None
        """The controller, if this broker is the controller."""
        self.on_session_lost: list[Callable[[], None]] = []
        """Called at once, on the loop, when this broker must stop leading."""
        self._node = node
        self._myself = myself
        self._store = store
        self._metadata = metadata
        self._peers = peers
        self._replicas = replicas
        self._brokers: frozenset[int] = frozenset()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._next_controller: asyncio.Future[None] | None = None
        self._session_s = self._session_timeout_ms() / 1000
        stall_ms = node.config["kstore.coordination.stall.timeout.ms"]
        self._stall_s = stall_ms / 1000 if stall_ms else self._session_s
        self._awake_at = node.loop.time()
        self._given_up: str | None = None
        self._pulse: asyncio.TimerHandle | None = None
        self.outage = Outage(node, store, metadata, peers, self, self._session_s)
        """Handles outages of the store (runtime/membership/outage.py)."""
        self.suspected_brokers = SuspectedBrokers(node, store, metadata, peers, self._forget)
        """Brokers that may have ended (runtime/membership/suspected_brokers.py)."""

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller."""
        return self.controller is not None

    @property
    def joined(self) -> bool:
        """Whether the controller has sent all replicas and all metadata to this broker."""
        return self._replicas().ready.is_set()

    async def wait_joined(self) -> None:
        """Wait until the broker has joined."""
        await self._replicas().ready.wait()

    def reachable(self, listener: str) -> set[int] | None:
        """The brokers with an endpoint on a client's listener."""
        brokers = self._metadata.image.brokers.values()
        return {node.node_id for node in brokers if node.endpoint(listener) is not None}

    def gauges(self) -> Work[dict[str, int]]:
        """Metrics of the partitions that this broker leads, and the controller's if it is that."""
        led = yield from self._replicas().gauges()
        controller = self.controller
        found = {
            "broker_epoch": self.broker_epoch,
            **led,
            "active_controller": int(controller is not None),
        }
        return found if controller is None else found | (yield from controller.gauges())

    # ---- the controller ----

    async def ask_controller(self, request: Message, timeout_s: float) -> Any:
        """The response of the current controller. Raises RequestTimedOutError, and NetworkError as
        `Peers.ask`, also when another controller is elected: so no request waits for one that
        hangs.
        """
        if self._next_controller is None:
            self._next_controller = self._node.loop.create_future()
        changed = self._next_controller
        requested = asyncio.ensure_future(self._peers().ask(self.controller_id, request, timeout_s))
        try:
            await asyncio.wait({requested, changed}, return_when=asyncio.FIRST_COMPLETED)
            if requested.done():
                return requested.result()
        finally:
            requested.cancel()
        raise NetworkError(f"broker {self.controller_id} has become the controller in the meantime")

    def _know_controller(self, node_id: int, epoch: int) -> None:
        known = self.controller_id, self.controller_epoch
        self.controller_id, self.controller_epoch = node_id, epoch
        if known != (node_id, epoch) and self._next_controller is not None:
            changed, self._next_controller = self._next_controller, None
            changed.set_result(None)

    # ---- start ----

    async def start(self) -> None:
        """Register and take part in the election. Returns once the controller has sent everything
        to this broker. Raises StoreError if it cannot register.
        """
        slack_s = EXPIRY_S if self._node.config["zookeeper.connect"] else 0.0
        await self._register(patience_s=self._session_timeout_ms() / 1000 + slack_s)
        await self._when_it_answers(self._watch)
        self._awake_at = self._node.loop.time()
        self._beat()
        self._task = asyncio.create_task(self._follow())
        ready = self._replicas().ready
        while not ready.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(ready.wait(), PATIENCE_S)
                continue
            self._node.report(
                f"still waiting for the controller (broker {self.controller_id}) to assign "
                "replicas to this broker"
            )
        # Import them now, in a thread. Otherwise an election or the first replica would block the
        # loop.
        self._loading = asyncio.ensure_future(
            self._node.run_blocking(lambda: import_modules(SOON_NEEDED))
        )

    # ---- registration ----

    async def _register(self, *, patience_s: float | None = None) -> None:
        """Register, once an earlier session of this broker has ended (None: wait without limit)."""
        loop = self._node.loop
        reported, begin = False, loop.time()
        while True:
            try:
                epoch = await self._in_store(self._claim_id)
            except StoreUnavailableError as problem:
                if patience_s is None:
                    raise
                log.info("not registered yet: %s", problem)
                await asyncio.sleep(RETRY_S)
                begin = loop.time()  # sessions do not end while the ensemble is unavailable
                continue
            if epoch is not None:
                self.broker_epoch, self.ended_epoch, self.registered = epoch, epoch, True
                return
            if patience_s is not None and loop.time() - begin >= patience_s:
                raise StoreError(
                    f"broker {self.node_id} is already registered by a running process: stop it, "
                    "or set another node.id"
                )
            if not reported:
                reported = True
                self._node.report(
                    f"broker {self.node_id} is still registered by another session: waiting until "
                    f"that session expires, at most {self._session_timeout_ms()} ms if its process "
                    "has ended"
                )
            await asyncio.sleep(RETRY_S)

    async def _when_it_answers(self, call: Callable[[], Any]) -> Any:
        """Repeat a call to the store until the store answers."""
        while True:
            try:
                return await self._in_store(call)
            except StoreUnavailableError as problem:
                log.info("retrying a request to the coordination store: %s", problem)
                await asyncio.sleep(RETRY_S)

    def _claim_id(self) -> int | None:
        protocols = self._node.config.listener_protocols
        now = self._node.now_ms()
        return registration.register(self._store, self._myself, now, protocols, self.ended_epoch)

    def _session_timeout_ms(self) -> int:
        config = self._node.config
        store = "kstore.coordination" if config["kstore.coordination.dir"] else "zookeeper"
        return int(config[f"{store}.session.timeout.ms"])

    # ---- changes by others ----

    def _watch(self) -> None:
        self._store.on_contact(self._on_contact)
        for path in (znodes.BROKER_IDS, CONTROLLER):
            self._store.watch(path, self._on_watch)
        self._on_contact()

    def _on_watch(self, event: WatchEvent) -> None:
        """Runs on a thread of the store."""
        self._on_contact()

    def _on_contact(self) -> None:
        """Runs on a thread of the store."""
        with suppress(RuntimeError):  # the loop is closed
            self._node.loop.call_soon_threadsafe(self._note)

    def _note(self) -> None:
        if self._store.over:
            self._fence()  # now, not after waiting calls in the store's thread
        self.outage.note()
        self._changed.set()

    async def _follow(self) -> None:
        """Check after each change. When the session is over, begin a new one."""
        self._changed.set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._look()
            except StoreClosedError as problem:
                log.info("%s", problem)
                await self._start_over()
            except StoreUnavailableError as problem:
                log.info("%s", problem)
                await asyncio.sleep(RETRY_S)
                if not self._store.away:  # otherwise the watch fires when it is back
                    self._changed.set()
            except Exception as problem:  # a defect; the broker needs this task
                log.error("a change of the cluster failed; trying again", exc_info=problem)
                await self._resign()
                await asyncio.sleep(AFTER_DEFECT_S)
                self._changed.set()

    async def _look(self) -> None:
        if self._given_up is not None:
            why, self._given_up = self._given_up, None
            raise StoreClosedError(why)
        await self.outage.keep_promise()
        view = await self._in_store(lambda: registration.read_view(self._store))
        if self.registered and self.node_id not in view.broker_ids:
            raise StoreClosedError(f"the node of broker {self.node_id} was deleted")
        self._take_over_brokers(view)
        if self.controller is not None and not self.controller.active:
            await self._resign()
        if view.controller_id < 0 or (view.controller_is_mine and self.controller is None):
            await self._resign()
            await self._elect(view)
            return
        if not view.controller_is_mine:
            await self._resign()
        self._know_controller(view.controller_id, view.controller_epoch)

    def _take_over_brokers(self, view: ClusterView) -> None:
        gone = self._brokers - view.broker_ids
        self._brokers = view.broker_ids
        for node_id in gone:
            self._forget(node_id)

    def suspect(self, node_id: int) -> None:
        """A connection to a broker has ended; see SuspectedBrokers."""
        self.suspected_brokers.suspect(node_id)

    def _forget(self, node_id: int) -> None:
        metadata = self._metadata
        metadata.publish(metadata.image.without_broker(node_id))
        metadata.forget_departed_later(self._node.loop)
        self._peers().forget(node_id)

    async def _elect(self, view: ClusterView) -> None:
        """Try to become the controller. If the response is lost, the next check sees the result."""
        if not view.controller_is_mine:
            now_ms = self._node.now_ms()
            await self._in_store(
                lambda: registration.claim_controller(self._store, self.node_id, now_ms)
            )
            view = await self._in_store(lambda: registration.read_view(self._store))
        if not view.controller_is_mine:
            self._changed.set()  # another broker was faster
            return
        from kstore.broker.runtime.controller.controller import Controller

        epoch, version = view.controller_epoch, view.controller_epoch_version
        self._know_controller(self.node_id, epoch)
        log.info("broker %d is the controller, epoch %d", self.node_id, epoch)
        self.controller = Controller(
            self._node, self._store, self._peers(), epoch, version, self.outage.keep_promise
        )
        try:
            await self.controller.start()
        except StoreClosedError:
            raise
        except Exception as problem:  # another broker should try
            log.error("this broker can't be the controller", exc_info=problem)
            await self._resign()
            await asyncio.sleep(RETRY_S)
            await self._in_store(lambda: registration.resign(self._store))
            self._changed.set()

    async def _resign(self) -> None:
        controller, self.controller = self.controller, None
        if controller is not None:
            log.info("broker %d is no longer the controller", self.node_id)
            await controller.close()

    # ---- the session's end ----

    async def _start_over(self) -> None:
        """The store has ended the session: stop leading, and register with a new broker epoch."""
        self._node.report(
            "the coordination store has ended this broker's session: it stops leading, and "
            "registers again with a new session"
        )
        self._fence()
        await self._resign()
        while True:
            try:
                await self._in_store(self._store.renew)
                await self._register()
                self._node.report(f"broker {self.node_id} is registered again")
                self._changed.set()
                return
            except StoreError as problem:
                log.debug("no new session yet: %s", problem)
                await asyncio.sleep(RETRY_S)
            except Exception as problem:  # a defect, as in _follow
                log.error("no new session with the store; trying again", exc_info=problem)
                await asyncio.sleep(AFTER_DEFECT_S)

    def _fence(self) -> None:
        if not self.registered:
            return
        self.broker_epoch, self.registered = self.broker_epoch + 1, False
        for callback in self.on_session_lost:
            callback()

    # ---- a stalled process ----

    def check_awake(self) -> None:
        """Call this before this broker answers without asking others. If the process was stalled
        for as long as its session lasts, other brokers may lead its partitions, and it is fenced
        without knowing it yet.
        """
        stood_s = self._node.loop.time() - self._awake_at
        if stood_s < min(self._stall_s, self._session_s) or not self.registered:
            return
        if stood_s < self._session_s and not self._store.has_expired():
            return
        self.give_up(
            f"this process was stopped for {stood_s:.1f} s, and its session may be over: it "
            "stops leading, and registers again with a new session"
        )

    def may_answer_alone(self) -> bool:
        """Whether this broker may answer without asking others: no other broker can have been
        elected in the meantime.
        """
        self.check_awake()
        return self.outage.sure

    def sees_the_store(self) -> bool:
        """See Outage."""
        return self.outage.sees_the_store()

    def give_up(self, why: str) -> None:
        """Stop leading, since others may lead this broker's partitions by now."""
        if not self.registered:
            return
        self._node.report(why)
        self._given_up = why
        self._fence()
        self._changed.set()

    def _beat(self) -> None:
        self.check_awake()
        self._awake_at = self._node.loop.time()
        pause_s = min(self._stall_s, self._session_s) * PULSE
        self._pulse = self._node.loop.call_later(pause_s, self._beat)

    # ---- stop ----

    async def close(self) -> None:
        """Move leadership to other brokers, within a limited time, then leave the cluster."""
        if self.registered and self._node.config["controlled.shutdown.enable"]:
            try:
                await asyncio.wait_for(self._hand_over(), SHUTDOWN_S)
            except TimeoutError:
                self._node.report(
                    f"other brokers did not take over everything within {SHUTDOWN_S:g} s"
                )
            except Exception as problem:  # a defect must not prevent the stop
                log.error("the controlled shutdown failed", exc_info=problem)
        if self._pulse is not None:
            self._pulse.cancel()
        self.outage.close()
        await self.suspected_brokers.close()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._fence()
        await self._resign()
        with suppress(StoreError):  # then the session's end removes the registration
            await self._in_store(lambda: registration.leave(self._store, self.node_id))

    async def _hand_over(self) -> None:
        """Send ControlledShutdown, also to a new controller, until this broker leads nothing that
        another broker could lead, or no more partitions move.
        """
        fewest, since = 1 << 31, self._node.loop.time()
        while self._brokers - {self.node_id}:
            try:
                left = await self._ask_to_leave()
            except (KafkaError, OSError, StoreError) as problem:
                log.info("controlled shutdown: %s", problem)
            else:
                if left < fewest:
                    fewest, since = left, self._node.loop.time()
                if not left or self._node.loop.time() - since >= NO_PROGRESS_S:
                    return
            await asyncio.sleep(RETRY_S)

    async def _ask_to_leave(self) -> int:
        """Send one request. Returns how many partitions other brokers do not lead yet."""
        if self.controller is not None:
            return len(await self.controller.controlled_shutdown(self.node_id, self.broker_epoch))
        request = ControlledShutdownRequest(broker_id=self.node_id, broker_epoch=self.broker_epoch)
        response: Any = await self._peers().ask(self.controller_id, request)
        if response.error_code:
            raise error_for(response.error_code)
        return len(response.remaining_partitions)

    async def _in_store(self, call: Callable[[], Any]) -> Any:
        return await self._node.run_blocking(call)
