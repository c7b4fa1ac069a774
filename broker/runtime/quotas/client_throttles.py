"""Applies client quotas (KIP-13, KIP-124). A client that produces or fetches more bytes, or uses
more of the broker's time, than its quota allows is throttled. The response has the throttle time.

The user is the authenticated one, or ANONYMOUS on a listener without authentication. While no user
and no client id has a quota, connections do not use this and pay nothing for it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Coroutine, Generator
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kstore.acls import CLUSTER_NAME, AclOperation, AclResourceType
from kstore.broker.state.bounded_cache import BoundedCache, text_bytes
from kstore.broker.state.quotas.client_quotas import CLIENT_ID, USER, precedence
from kstore.broker.state.quotas.rates import SampledRate, TokenBucket

if TYPE_CHECKING:
    from kstore._fast.network.connection import Connection
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.quotas.client_quotas import ClientQuotas
    from kstore.broker.state.security.authorizer import Authorizer
    from kstore.protocol.schema import Message

__all__ = ["KEYS", "ClientThrottles", "Mutations"]

T = TypeVar("T")
PRODUCE, FETCH = 0, 1
BYTE_RATES = {PRODUCE: "producer_byte_rate", FETCH: "consumer_byte_rate"}
REQUEST_TIME = "request_percentage"
MUTATIONS = "controller_mutation_rate"
KEYS = (*BYTE_RATES.values(), REQUEST_TIME, MUTATIONS)
MAX_REQUEST_WAIT_MS = 1000.0
MAX_WAIT_MS = MAX_FETCH_BYTES = 2**31 - 1
MAX_BYTES = 8 << 20
"""The limit in bytes of each of the three tables by client, since clients choose their ids. It is
enough for about 8,000 clients.
"""
LIMIT_BYTES, RATE_BYTES = 512, 2048
"""The size of an entry without its texts."""
PERCENT_PER_NS = 100 / 1e9
BROKER_CLIENT = re.compile(r"broker-([0-9]{1,10})(?:-fetcher)?")
"""The client ids of requests between brokers (peers.py, _fast/replication/replica_session.pyx)."""


class _Limit(NamedTuple):
    """What a client uses per second, and its quota."""

    rate: SampledRate
    bound: float


class _ClientIdentity(NamedTuple):
    """The sender of requests; a quota applies to the user, the client id, or both."""

    principal: str
    client_id: str
    host: str = ""
    listener: str = ""

    @property
    def user(self) -> str:
        """The principal's name."""
        return self.principal.partition(":")[2]


class Mutations:
    """The partitions that one request creates or deletes (KIP-599)."""

    def __init__(
        self, bucket: TokenBucket, per_second: float, now_ms: float, *, strict: bool
    ) -> None:
        self._bucket = bucket
        self._per_second = per_second
        self._now_ms = now_ms
        self._strict = strict
        self._wait_ms = 0

    def charge(self, partitions: int) -> bool:
        """Charge for partitions. Returns False if the client must wait first: it gets
        THROTTLING_QUOTA_EXCEEDED. A client that does not know this error is never refused.
        """
        owed_ms = int(self._bucket.wait_ms(self._now_ms, self._per_second))
        if self._strict and owed_ms > 0:
            self._wait_ms = owed_ms
            return False
        self._bucket.take(self._now_ms, self._per_second, partitions)
        if not self._strict:
            self._wait_ms = int(self._bucket.wait_ms(self._now_ms, self._per_second))
        return True

    def wait_ms(self) -> int:
        """The throttle time after the request."""
        return self._wait_ms


class _Charged(Awaitable[T]):
    """A handler that answers late. Each turn of the loop that it uses is charged to its client."""

    def __init__(
        self, throttles: ClientThrottles, connection: Connection, work: Coroutine[Any, Any, T]
    ) -> None:
        self._throttles = throttles
        self._connection = connection
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        go_on = partial(self._work.send, None)
        while True:
            began = self._throttles.begin()
            try:
                waits = go_on()
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                self._throttles.spent(self._connection, began)
            try:
                yield waits
            except BaseException as problem:  # noqa: BLE001 - the handler's error
                go_on = partial(self._work.throw, problem)
            else:
                go_on = partial(self._work.send, None)


class ClientThrottles:
    """The rates of clients that have quotas."""

    def __init__(
        self,
        node: Node,
        metadata: MetadataCache,
        authorizer: Authorizer | None,
        quotas: ClientQuotas,
        peer_listener: str | None,
    ) -> None:
        """``peer_listener`` is the inter-broker listener; None if there are no other brokers."""
        self._loop = node.loop
        self._config = node.config
        self._metadata = metadata
        self._authorizer = authorizer
        self._quotas = quotas
        self._peer_listener = peer_listener
        self._rates: BoundedCache[tuple[str, str | None, str | None], SampledRate] = BoundedCache(
            MAX_BYTES
        )
        self._limits: BoundedCache[tuple[str, _ClientIdentity], tuple[_Limit | None]] = (
            BoundedCache(MAX_BYTES)
        )
        self._buckets: BoundedCache[tuple[str | None, str | None], TokenBucket] = BoundedCache(
            MAX_BYTES
        )
        self._until: dict[Connection, float] = {}
        """Throttled connections, and the time of the loop until which they are muted."""
        self.throttles = 0
        """How often a client was throttled."""
        self.throttled_ms = 0
        """The total throttle time."""
        self.response_ms: dict[int, int] = {}
        """API key to the total of throttle times in responses."""
        self._began_ns = 0
        """When the current request began, or when its time was last charged."""

    @property
    def waiting(self) -> int:
        """How many connections are throttled now."""
        return len(self._until)

    def rates(self) -> list[tuple[str, str | None, str | None, float]]:
        """(quota key, user, client id, use per second) of all recent clients."""
        now_ms = self._loop.time() * 1000
        return [
            (key, user, client_id, rate.per_second(now_ms))
            for (key, user, client_id), rate in self._rates.items()
        ]

    def forget_bounds(self) -> None:
        """Look up quotas again, since they have changed. The recorded use remains."""
        self._limits.clear()

    # ---- called by connections ----

    def charge(self, connection: Connection, api_key: int, size: int) -> int:
        """Charge bytes. Returns how many ms the client must wait, including the charges for the
        time of its requests. The connection is unmuted after that time.
        """
        wait_ms = self._charge(connection, BYTE_RATES[api_key], size)
        if wait_ms > 0:
            self.response_ms[api_key] = self.response_ms.get(api_key, 0) + wait_ms
        return wait_ms

    def _charge(self, connection: Connection, key: str, size: int) -> int:
        now_ms = self._loop.time() * 1000
        wait_ms = self._request_wait_ms(connection, now_ms)
        limit = self._limit(connection, key)
        if limit is not None:
            limit.rate.record(now_ms, size)
            bytes_ms = int(min(limit.rate.throttle_ms(limit.bound, now_ms), MAX_WAIT_MS))
            wait_ms = max(wait_ms, bytes_ms)
        if wait_ms > 0:
            self._unmute_after(connection, wait_ms)
        return wait_ms

    def fetch_bytes(self, connection: Connection) -> int:
        """The limit in bytes of one fetch: what the client's quota allows in a whole window. A
        larger response would throttle the client for longer than a window.
        """
        limit = self._limit(connection, BYTE_RATES[FETCH])
        if limit is None:
            return MAX_FETCH_BYTES
        seconds = self._config["quota.window.size.seconds"]
        window_s = (self._config["quota.window.num"] - 1) * seconds
        return int(min(limit.bound * window_s, MAX_FETCH_BYTES))

    def begin(self) -> int:
        """Note the start of a request, for `spent`."""
        self._began_ns = perf_counter_ns()
        return self._began_ns

    def spent(self, connection: Connection, began: int) -> None:
        """Charge the time of a request. A client that exceeds its quota is muted."""
        self._take_time(connection)
        wait_ms = self._request_wait_ms(connection, self._loop.time() * 1000)
        if wait_ms > 0:
            self.hold(connection, wait_ms)

    def charge_late(self, connection: Connection, size: int, api_key: int = FETCH) -> int:
        """As `charge`, for a response of a handler that counts as a Fetch or a Produce. This mutes
        the connection, and `set_throttle_time` counts the throttle time in the response.
        """
        wait_ms = self._charge(connection, BYTE_RATES[api_key], size)
        if wait_ms > 0:
            connection.mute()
        return wait_ms

    # ---- called by the dispatch of other requests ----

    def timed(self, connection: Connection, response: Awaitable[T]) -> Awaitable[T]:
        """The same awaitable response, with each of its steps charged to the client."""
        if isinstance(response, Coroutine):
            return _Charged(self, connection, response)
        return response

    def set_throttle_time(
        self, connection: Connection, response: Message, *, is_late: bool = False
    ) -> None:
        """Set the throttle time in a response. For a late response, the time of the request was
        charged before.
        """
        known = getattr(response, "throttle_time_ms", None)
        if known is None:
            return
        if not is_late:
            self._take_time(connection)
        wait_ms = self._request_wait_ms(connection, self._loop.time() * 1000)
        if wait_ms > known:
            response.throttle_time_ms = known = wait_ms  # type: ignore[attr-defined]
        if known > 0:
            self.response_ms[response.API_KEY] = self.response_ms.get(response.API_KEY, 0) + known

    def _take_time(self, connection: Connection) -> None:
        limit = self._limit(connection, REQUEST_TIME)
        began_ns, self._began_ns = self._began_ns, perf_counter_ns()
        if limit is not None:
            used = (self._began_ns - began_ns) * PERCENT_PER_NS
            limit.rate.record(self._loop.time() * 1000, used)

    def _request_wait_ms(self, connection: Connection, now_ms: float) -> int:
        limit = self._limit(connection, REQUEST_TIME)
        if limit is None:
            return 0
        return int(min(limit.rate.throttle_ms(limit.bound, now_ms), MAX_REQUEST_WAIT_MS))

    # ---- called by handlers of topics ----

    def mutations(self, principal: str, client_id: str, *, strict: bool) -> Mutations | None:
        """The charge for a client's request; None if the client has no quota. ``strict``: the
        client knows the error THROTTLING_QUOTA_EXCEEDED.
        """
        held = self._held_by(MUTATIONS, _ClientIdentity(principal, client_id))
        if held is None:
            return None
        whose, bound = held
        bucket = self._buckets.get(whose)
        if bucket is None:
            windows = self._config["controller.quota.window.num"]
            seconds = self._config["controller.quota.window.size.seconds"]
            bucket = TokenBucket(windows * seconds)
            self._buckets.put(whose, bucket, LIMIT_BYTES + sum(map(text_bytes, whose)))
        return Mutations(bucket, bound, self._loop.time() * 1000, strict=strict)

    def hold(self, connection: Connection, wait_ms: int) -> None:
        """Do not serve a client for this time."""
        connection.mute()
        self._unmute_after(connection, wait_ms)

    def _unmute_after(self, connection: Connection, wait_ms: int) -> None:
        """Unmute after the longest of several waits. Times that overlap are counted once."""
        now = self._loop.time()
        known, end = self._until.get(connection), now + wait_ms / 1000
        self.throttles += known is None
        if known is None or end > known:
            self.throttled_ms += round((end - (now if known is None else known)) * 1000)
            self._until[connection] = end
            self._loop.call_later(wait_ms / 1000, self._wake, connection, end)

    def _wake(self, connection: Connection, end: float) -> None:
        if self._until.get(connection) == end:
            del self._until[connection]
            connection.unmute()

    # ---- which quota ----

    def _limit(self, connection: Connection, key: str) -> _Limit | None:
        client_id = (connection.client_id or b"").decode("utf-8", "replace")
        who = _ClientIdentity(
            connection.principal, client_id, connection.client_host, connection.listener
        )
        known = self._limits.get((key, who))
        if known is not None:
            return known[0]
        found = self._resolve(key, who)
        self._limits.put((key, who), (found,), LIMIT_BYTES + sum(map(text_bytes, who)))
        return found

    def _resolve(self, key: str, who: _ClientIdentity) -> _Limit | None:
        held = None if self._is_broker(who) else self._held_by(key, who)
        if held is None:
            return None
        whose, bound = held
        rate = self._rates.get((key, *whose))
        if rate is None:
            rate = self._new_rate()
            self._rates.put((key, *whose), rate, RATE_BYTES + sum(map(text_bytes, whose)))
        return _Limit(rate, bound)

    def _held_by(
        self, key: str, who: _ClientIdentity
    ) -> tuple[tuple[str | None, str | None], float] | None:
        """The (user, client id) that share a quota with this client, and the quota. A default quota
        applies to each user or client separately.
        """
        quotas = self._quotas.quotas
        for entity in precedence(who.user, who.client_id):
            bound = quotas.get(entity, {}).get(key)
            if bound is not None:
                kinds = {kind for kind, _ in entity}
                user = who.user if USER in kinds else None
                return (user, who.client_id if CLIENT_ID in kinds else None), bound
        return None

    def _is_broker(self, who: _ClientIdentity) -> bool:
        """Whether the client is another broker of the cluster: it uses the inter-broker listener
        and, if there is an authorizer, has the rights of a broker. Replication has separate
        throttles.
        """
        if who.listener != self._peer_listener:
            return False
        named = BROKER_CLIENT.fullmatch(who.client_id)
        if named is None or int(named[1]) not in self._metadata.image.brokers:
            return False
        action, kind = AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER
        return self._authorizer is None or self._authorizer.authorize(
            who.principal, who.host, action, kind, CLUSTER_NAME
        )

    def _new_rate(self) -> SampledRate:
        window_ms = self._config["quota.window.size.seconds"] * 1000
        return SampledRate(self._config["quota.window.num"], window_ms)
