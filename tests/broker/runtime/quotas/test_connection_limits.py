"""Limits on connections: which wait, which are refused, and which continue later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kstore.broker.runtime.lazy import Lazy
from kstore.broker.runtime.metadata.listener_settings import ListenerSettings
from kstore.broker.runtime.quotas.client_quota_manager import ClientQuotaManager
from kstore.broker.runtime.quotas.connection_limits import ConnectionLimits
from kstore.broker.state.quotas.rates import SampledRate
from kstore.config import BrokerConfig


class Loop:
    """A clock that stands, and timers that fire when it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[tuple[float, Any, tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Any, *args: Any) -> None:
        self.timers.append((self.now_s + delay_s, callback, args))

    def advance(self, seconds: float) -> None:
        end = self.now_s + seconds
        while due := [timer for timer in self.timers if timer[0] <= end]:
            first = min(due, key=lambda timer: timer[0])
            self.timers.remove(first)
            self.now_s = max(self.now_s, first[0])
            first[1](*first[2])
        self.now_s = end


class Client:
    """A connection, as far as the limits use it."""

    def __init__(self, host: str = "10.0.0.1", listener: str = "PLAINTEXT", at_ms: int = 0) -> None:
        self.client_host, self.listener, self.last_active_ms = host, listener, at_ms
        self.muted = False

    def mute(self) -> None:
        self.muted = True

    def unmute(self) -> None:
        self.muted = False


class Door:
    """The limits with these settings, and the connections that were refused after a wait."""

    def __init__(self, settings: dict[str, str], quotas: Any = None) -> None:
        config = BrokerConfig.load(overrides={"log.dirs": "unused", **settings}, environ={})
        self.loop = Loop()
        self.no_descriptors: str | None = None
        descriptors: Any = SimpleNamespace(refuse_connection=lambda: self.no_descriptors)
        # The settings that change at run time.
        self.configs: Any = SimpleNamespace(brokers={}, cluster={})
        self.reports: list[str] = []
        node: Any = SimpleNamespace(config=config, loop=self.loop, report=self.reports.append)
        manager: Any = SimpleNamespace(stored=quotas, throttles=None)
        lazy: Lazy[ClientQuotaManager] = Lazy(lambda: manager)
        if quotas is not None:
            lazy()
        self.refused: list[Client] = []
        self.limits = ConnectionLimits(
            node, descriptors, ListenerSettings(config, lambda: self.configs), lazy, self._refuse
        )

    def _refuse(self, client: Any, why: str) -> None:
        self.refused.append(client)

    def come(self, client: Client) -> str:
        reason = self.limits.arrived(client)
        return "refused" if reason is not None else "waits" if client.muted else "in"

    def go(self, client: Client) -> None:
        self.limits.lost(client)


TWO = {
    "listeners": "PLAINTEXT://localhost:0,OTHER://localhost:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:1,OTHER://localhost:2",
}


def test_beyond_max_connections_a_connection_waits_until_another_is_gone():
    door = Door({"max.connections": "2"})
    clients = [Client() for _ in range(4)]
    assert [door.come(client) for client in clients] == ["in", "in", "waits", "waits"]
    door.go(clients[0])
    assert [client.muted for client in clients] == [False, False, False, True]
    door.go(clients[3])  # its client gave up waiting
    door.go(clients[1])
    assert door.come(Client()) == "in"
    assert door.come(Client()) == "waits"


def test_no_more_wait_than_the_backlog_holds():
    door = Door({"max.connections": "1", "socket.listen.backlog.size": "2"})
    assert [door.come(Client()) for _ in range(4)] == ["in", "waits", "waits", "refused"]


def test_a_listener_has_its_own_limit():
    door = Door({**TWO, "listener.name.other.max.connections": "1"})
    assert [door.come(Client(listener="OTHER")) for _ in range(2)] == ["in", "waits"]
    assert door.come(Client()) == "in"


def test_on_the_brokers_own_listener_the_idlest_of_another_makes_room():
    door = Door({**TWO, "max.connections": "3"})
    others = [Client(listener="OTHER", at_ms=at) for at in (5, 3, 9)]
    assert [door.come(client) for client in others] == ["in", "in", "in"]
    assert door.come(Client(listener="OTHER")) == "waits"
    assert door.come(Client()) == "in"
    assert door.refused == [others[1]]


def test_an_address_with_too_many_connections_is_refused_others_are_not():
    settings = {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "10.0.0.2:2"}
    door = Door(settings)
    first = Client()
    assert [door.come(first), door.come(Client())] == ["in", "refused"]
    assert [door.come(Client("10.0.0.2")) for _ in range(3)] == ["in", "in", "refused"]
    door.go(first)
    assert door.come(Client()) == "in"


def test_beyond_the_creation_rate_connections_wait_in_their_order():
    door = Door({"max.connection.creation.rate": "1"})
    # A burst of ten windows is allowed.
    assert [door.come(Client()) for _ in range(10)] == ["in"] * 10
    late = [Client() for _ in range(3)]
    assert [door.come(client) for client in late] == ["waits"] * 3
    door.loop.advance(1.0)
    assert [client.muted for client in late] == [False, True, True]
    door.loop.advance(1.0)
    assert [client.muted for client in late] == [False, False, True]


def test_an_address_that_connects_too_often_is_closed_after_a_while():
    quotas = SimpleNamespace(quotas={(("ip", None),): {"connection_creation_rate": 1.0}})
    door = Door({}, quotas)
    assert [door.come(Client()) for _ in range(10)] == ["in"] * 10
    client = Client()
    assert door.come(client) == "waits"
    assert door.refused == []
    door.loop.advance(1.0)
    assert door.refused == [client]
    assert door.come(Client("10.0.0.2")) == "in"


def test_nobody_waits_for_descriptors():
    door = Door({})
    assert door.come(Client()) == "in"
    door.no_descriptors = "none is left"
    assert door.come(Client()) == "refused"
    door.no_descriptors = None
    assert door.come(Client()) == "in"


@pytest.mark.parametrize(("events", "bound"), [(11, 1.0), (25, 2.0)])
def test_a_rate_is_within_its_bound_after_the_time_to_wait(events, bound):
    rate = SampledRate()
    for _ in range(events):
        rate.record(1000.0, 1)
    wait_ms = rate.throttle_ms(bound, 1000.0)
    assert wait_ms > 0
    assert rate.throttle_ms(bound, 1000.0 + wait_ms + 1) == pytest.approx(0, abs=wait_ms)
    assert rate.per_second(1000.0 + 11_001) == 0


def test_a_steady_stream_at_the_bound_never_waits():
    rate = SampledRate()
    for number in range(200):
        rate.record(number * 500.0, 1)
        assert rate.throttle_ms(2.2, number * 500.0) == 0


def test_a_listeners_limit_is_changed_at_run_time() -> None:
    """For this broker or for all. An unreadable limit is reported once, and the limit from the
    start of the broker applies.
    """
    door = Door({**TWO, "listener.name.other.max.connections": "1"})
    assert [door.come(Client(listener="OTHER")) for _ in range(2)] == ["in", "waits"]
    limit = "listener.name.other.max.connections"
    door = Door({**TWO, limit: "1"})
    door.configs.cluster[limit] = "2"
    assert [door.come(Client(listener="OTHER")) for _ in range(2)] == ["in", "in"]
    door.configs.brokers["1"] = {limit: "3"}
    assert [door.come(Client(listener="OTHER")) for _ in range(2)] == ["in", "waits"]
    door = Door({**TWO, limit: "1"})
    door.configs.cluster[limit] = "many"
    assert [door.come(Client(listener="OTHER")) for _ in range(3)] == ["in", "waits", "waits"]
    [sentence] = door.reports
    assert "listener OTHER keeps the limits of its start" in sentence
