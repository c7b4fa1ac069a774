"""Connection limits: the number of connections per broker, listener and address, and the rate at
which they arrive (KIP-402, KIP-612).

As in Kafka, if a listener is full, its next connections wait, and an address with too many
connections is refused. A waiting connection is muted: for its client, it seems to wait in the
system's queue of connections. As many connections can wait as in that queue.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kstore.broker.state.quotas.rates import SampledRate
from kstore.config import ConfigError

if TYPE_CHECKING:
    from kstore._fast.network.connection import Connection
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.log_dirs.descriptors import Descriptors
    from kstore.broker.runtime.metadata.listener_settings import ListenerSettings
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.quotas.client_quota_manager import ClientQuotaManager
    from kstore.broker.state.quotas.client_quotas import Entity

__all__ = ["ConnectionLimits"]

MAX_THROTTLE_MS = 1000.0
MAX_HOST_RATES = 10_000
UNLIMITED = 2**31 - 1
RATE_KEY = "connection_creation_rate"


class _Acceptor:
    """One listener: its waiting connections, oldest first, and their rate."""

    def __init__(self) -> None:
        self.count = 0
        self.waiting: deque[Connection] = deque()
        self.rate = SampledRate()
        self.paused = False
        """Whether a timer is set. Until it fires, no connection is accepted."""


class ConnectionLimits:
    """The connections of one broker, counted."""

    def __init__(
        self,
        node: Node,
        descriptors: Descriptors,
        settings: ListenerSettings,
        quotas: Lazy[ClientQuotaManager],
        refuse: Callable[[Connection, str], None],
    ) -> None:
        """``refuse`` closes a connection that has waited, with a reason."""
        self._config = node.config
        self._loop = node.loop
        self._report = node.report
        self._descriptors = descriptors
        self._settings = settings
        self._quotas = quotas
        self._refuse = refuse
        self._acceptors: dict[str, _Acceptor] = {}
        self._accepted: dict[Connection, None] = {}
        self._hosts: Counter[str] = Counter()
        self._rate = SampledRate()
        self._host_rates: dict[str, SampledRate] = {}
        self._overrides: tuple[str, dict[str, int]] = ("", {})
        self._trouble = ""

    def arrived(self, connection: Connection) -> str | None:
        """Accept a connection or let it wait. Returns the reason if it is refused."""
        refusal = self._descriptors.refuse_connection()
        if refusal is not None:
            return refusal
        acceptor = self._acceptor(connection.listener)
        if not acceptor.waiting and not acceptor.paused:
            wait_ms = self._wait_ms(connection.listener, acceptor)
            if wait_ms == 0:
                return self._accept(connection, acceptor)
            if wait_ms is not None:
                self._pause(connection.listener, acceptor, wait_ms)
        backlog = self._config["socket.listen.backlog.size"]
        if len(acceptor.waiting) >= backlog:
            return f"{backlog} connections are already waiting (socket.listen.backlog.size)"
        connection.mute()
        acceptor.waiting.append(connection)
        return None

    def lost(self, connection: Connection) -> None:
        """Called when a connection was closed: a waiting one may be accepted now."""
        if connection in self._accepted:
            del self._accepted[connection]
            self._acceptor(connection.listener).count -= 1
            self._hosts[connection.client_host] -= 1
            if not self._hosts[connection.client_host]:
                del self._hosts[connection.client_host]
        else:
            waiting = self._acceptor(connection.listener).waiting
            if connection in waiting:
                waiting.remove(connection)
        for listener, acceptor in self._acceptors.items():
            if acceptor.waiting:
                self._go_on(listener, acceptor)

    # ---- room ----

    def _wait_ms(self, listener: str, acceptor: _Acceptor) -> float | None:
        """How long the next connection must wait: 0 if it can be accepted now, None if another
        connection must be closed first. Rates are charged only if there is room.
        """
        # Without a setting of its own, the broker's setting limits the listener; it also limits all
        # listeners together.
        limit = self._config["max.connections"]
        own = self._own(listener, "max.connections")
        if acceptor.count >= (limit if own is None else own):
            return None
        full = len(self._accepted) >= limit
        if full and not self._is_protected(listener):
            return None
        now_ms = self._loop.time() * 1000
        wait_ms = 0.0
        bounds = (
            (acceptor.rate, self._own(listener, "max.connection.creation.rate")),
            (self._rate, self._config["max.connection.creation.rate"]),
        )
        for rate, bound in bounds:
            if bound is not None and bound < UNLIMITED:
                rate.record(now_ms, 1)
                wait_ms = max(wait_ms, min(rate.throttle_ms(bound, now_ms), MAX_THROTTLE_MS))
        return wait_ms

    def _own(self, listener: str, name: str) -> Any:
        """The listener's own setting, dynamic or from the start. None if it has none."""
        try:
            return self._settings.of(listener, (name,), own=True)[name]
        except ConfigError as problem:  # another program has written an invalid value to the store
            if self._trouble != str(problem):
                self._trouble = str(problem)
                self._report(f"listener {listener} keeps the limits of its start: {problem}")
            return self._config.for_listener(listener, name)

    def _is_protected(self, listener: str) -> bool:
        """Whether it is the inter-broker listener, and there are other listeners. Then a new
        connection takes the place of a connection of another listener.
        """
        listeners = self._config.listeners
        return len(listeners) > 1 and listener == self._config.inter_broker_listener.name

    def _pause(self, listener: str, acceptor: _Acceptor, wait_ms: float) -> None:
        acceptor.paused = True

        def accept_one() -> None:
            acceptor.paused = False
            if acceptor.waiting:
                self._accept_waiting(acceptor)
            self._go_on(listener, acceptor)

        self._loop.call_later(wait_ms / 1000, accept_one)

    def _go_on(self, listener: str, acceptor: _Acceptor) -> None:
        """Accept waiting connections while there is room."""
        while acceptor.waiting and not acceptor.paused:
            wait_ms = self._wait_ms(listener, acceptor)
            if wait_ms is None:
                return
            if wait_ms > 0:
                self._pause(listener, acceptor, wait_ms)
            else:
                self._accept_waiting(acceptor)

    def _accept_waiting(self, acceptor: _Acceptor) -> None:
        connection = acceptor.waiting.popleft()
        reason = self._accept(connection, acceptor)
        if reason is not None:
            self._refuse(connection, reason)
        elif connection in self._accepted:
            connection.unmute()

    # ---- acceptance ----

    def _accept(self, connection: Connection, acceptor: _Acceptor) -> str | None:
        host = connection.client_host
        delay_ms = self._host_throttle_ms(host)
        if delay_ms > 0:
            self._close_later(connection, delay_ms)
            return None
        limit = self._host_limit(host)
        if self._hosts[host] >= limit:
            return f"its address already has {limit} connections (max.connections.per.ip)"
        self._hosts[host] += 1
        acceptor.count += 1
        self._accepted[connection] = None
        quotas = self._quotas.made
        if quotas is not None:
            connection.quotas = quotas.throttles
        if len(self._accepted) > self._config["max.connections"]:
            self._make_room()
        return None

    def _make_room(self) -> None:
        """Close the connection of another listener that was idle for the longest time."""
        others = [c for c in self._accepted if not self._is_protected(c.listener)]
        if others:
            idlest = min(others, key=lambda connection: connection.last_active_ms)
            limit = self._config["max.connections"]
            self._refuse(idlest, f"there are more than {limit} connections (max.connections)")

    def _host_limit(self, host: str) -> int:
        """max.connections.per.ip, or the setting for this address."""
        text = self._config["max.connections.per.ip.overrides"]
        if text != self._overrides[0]:
            pairs = (item.strip().rpartition(":") for item in text.split(",") if item.strip())
            self._overrides = (text, {name: int(count) for name, _, count in pairs})
        default: int = self._config["max.connections.per.ip"]
        return self._overrides[1].get(host, default)

    def _host_throttle_ms(self, host: str) -> float:
        """How long an address that connects too often must wait. The limit is a quota of the
        address.
        """
        manager = self._quotas.made
        if manager is None:
            return 0.0
        quotas = manager.stored.quotas
        entities: tuple[Entity, ...] = ((("ip", host),), (("ip", None),))
        bounds = (quotas.get(entity, {}).get(RATE_KEY) for entity in entities)
        bound = next((value for value in bounds if value is not None), None)
        if bound is None:
            return 0.0
        now_ms = self._loop.time() * 1000
        if len(self._host_rates) >= MAX_HOST_RATES:
            self._forget_quiet_hosts(now_ms)
        rate = self._host_rates.setdefault(host, SampledRate())
        rate.record(now_ms, 1)
        delay_ms = min(rate.throttle_ms(bound, now_ms), MAX_THROTTLE_MS)
        if delay_ms > 0:
            rate.record(now_ms, -1)
        return delay_ms

    def _forget_quiet_hosts(self, now_ms: float) -> None:
        rates = self._host_rates.items()
        self._host_rates = {name: rate for name, rate in rates if rate.per_second(now_ms) > 0}

    def _close_later(self, connection: Connection, delay_ms: float) -> None:
        """Close the connection later: otherwise the client would connect again at once."""
        connection.mute()
        why = f"its address connects too often ({RATE_KEY})"
        self._loop.call_later(delay_ms / 1000, self._refuse, connection, why)

    def _acceptor(self, listener: str) -> _Acceptor:
        found = self._acceptors.get(listener)
        if found is None:
            found = self._acceptors[listener] = _Acceptor()
        return found
