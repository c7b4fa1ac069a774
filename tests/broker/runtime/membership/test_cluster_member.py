"""A broker as a member of its cluster: registration, election of the controller, end of a session.
Members share a store in memory. Doubles stand in for the controller and for the rest of the broker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from kstore.broker.coordination import registration, znodes
from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.coordination.renewable import RenewableStore
from kstore.broker.coordination.store import Store, StoreError
from kstore.broker.runtime.controller import controller
from kstore.broker.runtime.lazy import Lazy
from kstore.broker.runtime.membership import member as cluster
from kstore.broker.runtime.membership.member import ClusterMember
from kstore.broker.runtime.metadata.cache import MetadataCache
from kstore.broker.state.metadata.image import BrokerImage, Endpoint, MetadataImage
from kstore.errors import NetworkError
from kstore.protocol.schema import Message
from tests.beside.waiting import reached
from tests.plain_messages import Answer, Ask


class Settings(dict[str, Any]):
    """The endpoints of a broker without listeners for other protocols."""

    listener_protocols: ClassVar[dict[str, str]] = {}


SETTINGS = Settings(
    {
        "kstore.coordination.dir": "here",
        "zookeeper.connect": None,
        "kstore.coordination.session.timeout.ms": 100,
        "kstore.coordination.stall.timeout.ms": 0,
        "controlled.shutdown.enable": True,
    }
)


class FakeController:
    made: ClassVar[list[FakeController]] = []
    fails: ClassVar[int] = 0

    def __init__(
        self, node: Any, store: Any, peers: Any, epoch: int, epoch_version: int, keep_promise: Any
    ) -> None:
        self.node_id = node.node_id
        self.epoch, self.epoch_version = epoch, epoch_version
        self.started = self.closed = False
        self.active = True
        self.left: list[int] = []
        FakeController.made.append(self)

    async def start(self) -> None:
        if FakeController.fails:
            FakeController.fails -= 1
            raise OSError("no")
        self.started = True

    async def close(self) -> None:
        self.closed = True

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[int]:
        self.left.append(broker_id)
        return []


class Machine:
    """Members on one store, each with its own sessions."""

    def __init__(self) -> None:
        self.root = MemoryStore()
        znodes.prepare(self.root)
        self.sessions: dict[int, list[Store]] = {}
        self.fenced: list[int] = []

    def member(self, node_id: int) -> ClusterMember:
        """A member that is not started. It always has enough metadata to be ready."""
        given = self.sessions.setdefault(node_id, [])

        def session() -> Store:
            given.append(self.root.new_session())
            return given[-1]

        ready = asyncio.Event()
        ready.set()
        image = MetadataImage("cluster")
        for each in (1, 2, 3):
            image = image.with_broker(BrokerImage(each, ()))
        node: Any = SimpleNamespace(
            node_id=node_id,
            config=SETTINGS,
            loop=asyncio.get_running_loop(),
            now_ms=lambda: 1000,
            report=lambda sentence: None,
            run_blocking=run_blocking,
        )
        metadata = MetadataCache(image, lambda: None)
        peers: Any = SimpleNamespace(forget=lambda node: None, ask=self._ask)
        replicas: Any = SimpleNamespace(ready=ready)
        myself = BrokerImage(node_id, (Endpoint("PLAINTEXT", "localhost", 9090 + node_id),), "rack")
        member = ClusterMember(
            node, myself, RenewableStore(session), metadata, Lazy(lambda: peers), lambda: replicas
        )
        member.on_session_lost.append(lambda: self.fenced.append(node_id))
        member._session_s = 600.0  # a busy machine does not end the session
        return member

    async def _ask(self, node_id: int, request: Any) -> Any:
        controller = next(c for c in reversed(FakeController.made) if c.node_id == node_id)
        await controller.controlled_shutdown(request.broker_id, request.broker_epoch)
        return Answer.ControlledShutdown()

    def expire(self, node_id: int) -> None:
        """End a member's session as the store would: its watches fire."""
        session: Any = self.sessions[node_id][-1]
        session._tree.expire(session.session_id)
        session._tree.note_lost({session.session_id})


async def run_blocking(call: Callable[[], Any]) -> Any:
    return call()


def knows(member: ClusterMember, node_ids: set[int]) -> bool:
    return member._brokers == node_ids


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(controller, "Controller", FakeController)
    monkeypatch.setattr(cluster, "RETRY_S", 0.001)
    FakeController.made, FakeController.fails = [], 0
    return Machine()


async def started(machine: Machine, *node_ids: int) -> list[ClusterMember]:
    members = [machine.member(node_id) for node_id in node_ids]
    for member in members:
        await member.start()
    await reached(lambda: all(member.controller_id == node_ids[0] for member in members))
    return members


def test_the_first_is_controller_and_all_know_it(machine: Machine) -> None:
    async def story() -> None:
        first, second, third = await started(machine, 1, 2, 3)
        await reached(lambda: first.is_controller and FakeController.made[0].started)
        assert not second.is_controller
        assert not third.is_controller
        assert [each.controller_epoch for each in (first, second, third)] == [1, 1, 1]
        assert FakeController.made[0].epoch == 1
        assert machine.root.get("/controller_epoch") == (b"1", FakeController.made[0].epoch_version)
        brokers = registration.read_brokers(machine.root)
        assert list(brokers) == [1, 2, 3]
        assert brokers[2] == BrokerImage(
            2, (Endpoint("PLAINTEXT", "localhost", 9092),), "rack", second.broker_epoch
        )
        known = {1, 2, 3}
        for member in (third, second, first):
            await reached(partial(knows, member, known))
            await member.close()
            known.discard(member.node_id)
        # The last broker has no other broker to hand over to.
        assert FakeController.made[0].left == [3, 2]

    asyncio.run(story())


def test_who_asks_a_controller_that_hangs_goes_on_with_the_next(machine: Machine) -> None:
    """The request may hang as long as its connections stay open, as with a stopped process."""

    async def story() -> None:
        first, second, third = await started(machine, 1, 2, 3)
        asked: list[int] = []

        async def hang(node_id: int, request: Message, timeout_s: float) -> Any:
            asked.append(node_id)
            await asyncio.Event().wait()

        third._peers().ask = hang  # type: ignore[method-assign]
        waiting = asyncio.create_task(third.ask_controller(Ask.ControlledShutdown(), 600))
        other = asyncio.create_task(third.ask_controller(Ask.ControlledShutdown(), 600))
        await reached(lambda: asked == [1, 1])
        await asyncio.sleep(0.01)
        assert not waiting.done()
        machine.root.delete("/controller")
        for task in (waiting, other):
            with pytest.raises(NetworkError):
                await task
        assert third.controller_epoch == 2
        for member in (third, second, first):
            await member.close()

    asyncio.run(story())


def test_who_stood_still_for_a_sessions_time_answers_nothing_before_it_is_registered_again(
    machine: Machine,
) -> None:
    """Other brokers may already lead its partitions by then, and it would learn too late that its
    session has ended.
    """

    async def story() -> None:
        first, second = await started(machine, 1, 2)
        epoch = second.broker_epoch
        second.check_awake()
        assert machine.fenced == []
        second._session_s = 0.02
        time.sleep(0.03)
        second.check_awake()
        assert machine.fenced == [2]
        assert not second.registered
        second._session_s = 600.0
        await reached(lambda: second.registered)
        assert second.broker_epoch > epoch
        assert machine.fenced == [2]
        for member in (second, first):
            await member.close()

    asyncio.run(story())


def test_a_clean_stop_hands_over_and_leaves_nothing(machine: Machine) -> None:
    async def story() -> None:
        first, second = await started(machine, 1, 2)
        await reached(lambda: first._brokers == {1, 2})
        await first.close()
        assert FakeController.made[0].left == [1]
        assert FakeController.made[0].closed
        assert machine.fenced == [1]
        await reached(lambda: second.is_controller)
        assert (second.controller_id, second.controller_epoch) == (2, 2)
        assert machine.root.children("/brokers/ids") == ["2"]
        await second.close()
        assert machine.root.stat("/controller") is None
        assert machine.root.get("/controller_epoch")[0] == b"2"

    asyncio.run(story())


def test_a_lost_session_fences_and_begins_anew(machine: Machine) -> None:
    async def story() -> None:
        first, second = await started(machine, 1, 2)
        old_epoch = first.broker_epoch
        machine.expire(1)
        await reached(lambda: first.registered and machine.fenced)
        await reached(lambda: first.controller_epoch == second.controller_epoch == 2)
        assert machine.fenced == [1]
        assert FakeController.made[0].closed
        assert [each.epoch for each in FakeController.made] == [1, 2]
        assert first.is_controller != second.is_controller
        assert first.broker_epoch > old_epoch
        assert registration.read_brokers(machine.root)[1].epoch == first.broker_epoch
        for member in (first, second):
            await member.close()

    asyncio.run(story())


def test_a_registration_that_somebody_deleted_is_made_again(machine: Machine) -> None:
    async def story() -> None:
        (first,) = await started(machine, 1)
        old_epoch = first.broker_epoch
        machine.root.delete("/brokers/ids/1")
        await reached(lambda: first.registered and first.broker_epoch > old_epoch)
        assert machine.fenced == [1]
        assert machine.root.children("/brokers/ids") == ["1"]
        await reached(lambda: first.is_controller)
        await first.close()

    asyncio.run(story())


def test_while_it_has_no_session_it_is_nobodys_earlier_life(machine: Machine) -> None:
    async def story() -> None:
        (first,) = await started(machine, 1)
        epochs: list[int] = []
        first.on_session_lost.append(lambda: epochs.append(first.broker_epoch))
        old_epoch = first.broker_epoch
        machine.expire(1)
        await reached(lambda: first.registered and epochs)
        assert old_epoch < epochs[0] <= first.broker_epoch
        await first.close()

    asyncio.run(story())


def test_a_lost_session_fences_before_the_store_answers_anything(machine: Machine) -> None:
    async def story() -> None:
        (first,) = await started(machine, 1)
        gate = asyncio.Event()

        async def stuck(call: Callable[[], Any]) -> Any:
            await gate.wait()
            return call()

        first._node.run_blocking = stuck  # type: ignore[method-assign]
        machine.expire(1)
        await reached(lambda: machine.fenced == [1])
        assert not first.registered
        gate.set()
        await reached(lambda: first.registered)
        assert machine.fenced == [1]
        await first.close()

    asyncio.run(story())


def test_a_broker_that_has_gone_is_no_longer_told_to_clients(machine: Machine) -> None:
    async def story() -> None:
        first, second, third = await started(machine, 1, 2, 3)
        metadata = first._metadata
        await reached(lambda: knows(first, {1, 2, 3}))
        machine.sessions[3][0].close()
        await reached(lambda: 3 not in metadata.image.brokers)
        first.suspect(2)
        assert 2 in metadata.image.brokers  # the process may only have closed a connection
        first._store.owner_has_ended = lambda path: path == "/brokers/ids/2"  # type: ignore[method-assign]
        first.suspect(2)
        assert 2 not in metadata.image.brokers
        for member in (third, second, first):
            await member.close()

    asyncio.run(story())


def test_a_controller_that_can_not_start_gives_way(machine: Machine) -> None:
    async def story() -> None:
        FakeController.fails = 1
        (first,) = await started(machine, 1)
        await reached(lambda: first.is_controller and FakeController.made[-1].started)
        assert [each.epoch for each in FakeController.made] == [1, 2]
        assert FakeController.made[0].closed
        await first.close()

    asyncio.run(story())


def test_an_id_that_is_taken_is_waited_for_and_then_refused(machine: Machine) -> None:
    async def story() -> None:
        (first,) = await started(machine, 1)
        twin = machine.member(1)
        with pytest.raises(StoreError, match="broker 1 is already registered"):
            await twin.start()
        late = machine.member(1)
        starting: Awaitable[None] = asyncio.ensure_future(late.start())
        machine.sessions[1][0].close()
        await starting
        await reached(lambda: late.is_controller)
        await late.close()
        await first.close()

    asyncio.run(story())


def test_a_claim_whose_answer_was_lost_is_found(machine: Machine) -> None:
    async def story() -> None:
        member = machine.member(1)
        assert registration.claim_controller(member._store, 1, 1000)
        await member.start()
        await reached(lambda: member.is_controller)
        assert member.controller_epoch == 1
        await member.close()

    asyncio.run(story())


def test_two_claims_have_two_epochs(machine: Machine) -> None:
    first, second = machine.root.new_session(), machine.root.new_session()
    assert registration.claim_controller(first, 1, 1000)
    assert not registration.claim_controller(second, 2, 1000)
    view = registration.read_view(second)
    assert (view.controller_id, view.controller_is_mine, view.controller_epoch) == (1, False, 1)
    first.close()
    assert registration.claim_controller(second, 2, 1000)
    assert registration.read_view(second)[:3] == (2, True, 2)


def test_an_epoch_that_is_just_being_made_counts_as_none() -> None:
    """A rival has created the node and has not written its first epoch yet."""
    store = MemoryStore()
    znodes.prepare(store)
    store.ensure(registration.CONTROLLER_EPOCH)
    assert registration.read_view(store).controller_epoch == 0
