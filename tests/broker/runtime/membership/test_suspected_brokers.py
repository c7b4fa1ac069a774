"""A broker's connection has ended: how the others find out whether the broker has too."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kstore.broker.coordination import registration, znodes
from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.coordination.store import Store, StoreUnavailableError
from kstore.broker.runtime.membership import suspected_brokers
from kstore.broker.runtime.membership.suspected_brokers import SuspectedBrokers
from kstore.broker.runtime.metadata.cache import MetadataCache
from kstore.broker.state.metadata.image import BrokerImage, Endpoint, MetadataImage
from tests.conformance.kafka_broker import free_port

ME, OTHER = 1, 2


class World:
    """This broker and another one, in a store that does not see processes, such as ZooKeeper."""

    def __init__(self, port: int) -> None:
        self.mine: Store = MemoryStore()
        znodes.prepare(self.mine)
        self.theirs = self.mine.new_session()
        self.mine.owner_has_ended = lambda path: None  # type: ignore[method-assign]
        self.endpoint = Endpoint("PLAINTEXT", "127.0.0.1", port)
        self.epoch = self.register()
        image = MetadataImage("c").with_broker(BrokerImage(ME, ()))
        self.told: list[str] = []
        self.metadata = MetadataCache(image, lambda: None)
        self.know(self.epoch)
        self.config = {"kstore.zookeeper.refusal.ends.session": True}
        node: Any = SimpleNamespace(
            loop=asyncio.get_running_loop(), node_id=ME, config=self.config,
            report=self.told.append, run_blocking=self.run_blocking,
        )  # fmt: skip
        peers: Any = lambda: SimpleNamespace(endpoint=lambda node_id: self.endpoint)  # noqa: E731
        self.parts = SuspectedBrokers(node, self.mine, self.metadata, peers, self.ended)
        self.parts.on_suspected.append(lambda node_id: self.told.append(f"suspect {node_id}"))
        self.parts.on_cleared.append(lambda node_id: self.told.append(f"clear {node_id}"))

    def register(self) -> int:
        epoch = registration.register(self.theirs, BrokerImage(OTHER, (self.endpoint,)), 0)
        assert epoch is not None
        return epoch

    def know(self, epoch: int) -> None:
        broker = BrokerImage(OTHER, (self.endpoint,), None, epoch)
        self.metadata.publish(self.metadata.image.with_broker(broker))

    def ended(self, node_id: int) -> None:
        self.told.append(f"ended {node_id}")

    async def run_blocking(self, call: Callable[[], Any]) -> Any:
        return call()

    async def settle(self) -> None:
        while self.parts._looking:
            await asyncio.sleep(0.001)

    @property
    def registered(self) -> bool:
        return self.mine.stat(f"{znodes.BROKER_IDS}/{OTHER}") is not None


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspected_brokers, "PAUSES_S", (0.0, 0.0, 0.0))


def run(story: Callable[[World], Awaitable[None]], port: int) -> None:
    async def main() -> None:
        await story(World(port))

    asyncio.run(main())


def test_a_broker_whose_port_refuses_is_unregistered_at_once() -> None:
    async def story(world: World) -> None:
        registration.claim_controller(world.theirs, OTHER, 0)
        world.parts.suspect(OTHER)
        await world.settle()
        assert world.told[0] == "suspect 2"
        assert world.told[-1] == "ended 2"
        assert not world.registered
        assert world.mine.stat(registration.CONTROLLER) is None

    run(story, free_port())


def test_a_controller_that_is_another_broker_stays() -> None:
    async def story(world: World) -> None:
        registration.claim_controller(world.mine, ME, 0)
        world.parts.suspect(OTHER)
        await world.settle()
        assert not world.registered
        assert world.mine.stat(registration.CONTROLLER) is not None

    run(story, free_port())


def test_a_broker_that_still_listens_is_left_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        async def story(world: World) -> None:
            world.parts.suspect(OTHER)
            world.parts.suspect(OTHER)  # the check is in progress
            await world.settle()
            assert world.told == ["suspect 2", "clear 2"]
            assert world.registered

        run(story, server.getsockname()[1])


def test_another_life_of_the_broker_is_not_unregistered() -> None:
    async def story(world: World) -> None:
        world.know(world.epoch - 1)  # this broker does not know about the new one yet
        world.parts.suspect(OTHER)
        await world.settle()
        assert world.registered

    run(story, free_port())


def test_a_refusal_says_nothing_where_the_setting_says_so() -> None:
    async def story(world: World) -> None:
        world.config["kstore.zookeeper.refusal.ends.session"] = False
        world.parts.suspect(OTHER)
        await world.settle()
        assert world.told == ["suspect 2", "clear 2"]
        assert world.registered

    run(story, free_port())


def test_a_store_that_sees_the_process_is_believed() -> None:
    async def story(world: World) -> None:
        said = [False, False, True]
        world.mine.owner_has_ended = lambda path: said.pop(0)  # type: ignore[method-assign]
        world.parts.suspect(OTHER)
        await world.settle()
        assert world.told == ["suspect 2", "ended 2"]
        assert world.registered  # the store removes the session

    run(story, free_port())


def test_a_store_that_is_away_leaves_the_broker_registered() -> None:
    async def story(world: World) -> None:
        def away(path: str) -> None:
            raise StoreUnavailableError("no majority")

        world.mine.stat, stat = away, world.mine.stat  # type: ignore[assignment, method-assign]
        world.parts.suspect(OTHER)
        await world.settle()
        world.mine.stat = stat  # type: ignore[method-assign]
        assert world.told[-1] == "ended 2"  # no client is sent to the broker
        assert world.registered

    run(story, free_port())


def test_two_that_see_it_end_are_no_trouble_to_each_other() -> None:
    async def story(world: World) -> None:
        registration.unregister(world.mine, OTHER, world.epoch)
        registration.unregister(world.mine, OTHER, world.epoch)
        assert not world.registered

    run(story, free_port())
