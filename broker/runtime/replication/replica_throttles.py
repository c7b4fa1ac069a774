"""Throttles followers (KIP-73): while the configured replicas are behind, they are copied at a
limited rate. In-sync replicas are never throttled.

The rate is a dynamic setting of the broker, the replicas are a setting of the topic. Both are read
every second. Without a rate nothing else happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kstore.broker.runtime.replication.throttled_replicas import NO_RATE

if TYPE_CHECKING:
    import asyncio

    from kstore._fast.replication.replica_fetcher import ReplicaFetcher
    from kstore._fast.replication.replica_session import Followed
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.replication.leader_throttle import LeaderThrottle
    from kstore.broker.runtime.replication.throttled_replicas import ThrottledReplicas

__all__ = ["ReplicaThrottles"]

LOOK_S = 1.0
LONGEST_PAUSE_S = 1.0


class ReplicaThrottles:
    """The throttle of a broker's fetchers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        followers: ThrottledReplicas,
        leaders: ThrottledReplicas,
        leader_throttle: Lazy[LeaderThrottle],
    ) -> None:
        """``leader_throttle`` is created once a rate is set for leaders."""
        self._loop = loop
        self._followers = followers
        self._leaders = leaders
        self._leader_throttle = leader_throttle
        self._copies: Callable[[], Iterable[Followed]] = tuple
        self._rate = NO_RATE
        self._measured = followers.measure()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, copies: Callable[[], Iterable[Followed]]) -> None:
        """Follow the settings from now on. ``copies`` returns the copied partitions."""
        self._copies = copies
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def applies(self, followed: Followed) -> bool:
        """Whether received bytes of a partition count."""
        self._rate = self._followers.rate()
        return self._rate != NO_RATE and self._is_named(followed)

    def received(self, fetcher: ReplicaFetcher, size_bytes: int) -> None:
        """Count copied bytes of throttled replicas. Those of this leader that are behind may have
        to wait.
        """
        self._measured.record(self._now_ms(), size_bytes)
        pause_s = self._pause_s()
        if pause_s <= 0:
            return
        behind = [
            each for each in fetcher.all()
            if each.throttled
            and not each.held
            and each.partition.log_end_offset < each.leader_high_watermark
        ]  # fmt: skip
        for each in behind:
            fetcher.hold(each)
        self._loop.call_later(min(pause_s, LONGEST_PAUSE_S), self._go_on, fetcher, behind)

    def _go_on(self, fetcher: ReplicaFetcher, held: list[Followed]) -> None:
        pause_s = self._pause_s()
        if pause_s > 0:
            self._loop.call_later(min(pause_s, LONGEST_PAUSE_S), self._go_on, fetcher, held)
            return
        for each in held:
            fetcher.release(each)

    def _pause_s(self) -> float:
        if self._rate == NO_RATE:
            return 0.0
        return self._measured.throttle_ms(self._rate, self._now_ms()) / 1000

    def _now_ms(self) -> float:
        return self._loop.time() * 1000

    # ---- settings ----

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        self._look_as_leader()
        before, self._rate = self._rate, self._followers.rate()
        if before == self._rate == NO_RATE:
            return
        for each in self._copies():
            each.throttled = self.applies(each)

    def _look_as_leader(self) -> None:
        if self._leader_throttle.made is not None or self._leaders.rate() != NO_RATE:
            self._leader_throttle().look()

    def _is_named(self, followed: Followed) -> bool:
        return self._followers.has(followed.key.topic, followed.key.partition)
