"""How much copying may cost (KIP-73): the replicas that are named for it are copied within a rate
while they are behind. One that is in sync is never slowed down.

The rate is a broker config of a running cluster, the replicas a topic config; both are looked at
every second, and while there is no rate nothing else happens here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.broker.state.quotas.rates import SampledRate
from kstore.broker.state.replication.follower import names_replica

if TYPE_CHECKING:
    import asyncio

    from kstore._fast.replication.replica_fetcher import ReplicaFetcher
    from kstore._fast.replication.replica_session import Followed
    from kstore.broker.runtime.broker import Broker
    from kstore.broker.runtime.replication.leader_throttle import LeaderThrottle

__all__ = ["NO_RATE", "ReplicaThrottles", "named_replica", "new_rate", "rate_set"]

SIDE = "follower"
NO_RATE = -1
LOOK_S = 1.0
LONGEST_PAUSE_S = 1.0


class ReplicaThrottles:
    """The throttle of a broker's fetchers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._rate = NO_RATE
        self._measured = new_rate(broker)
        self._leader: LeaderThrottle | None = None
        self._timer: asyncio.TimerHandle | None = broker.loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def applies(self, followed: Followed) -> bool:
        """Whether what comes of a partition counts."""
        self._rate = rate_set(self._broker, SIDE)
        return self._rate != NO_RATE and self._is_named(followed)

    def received(self, fetcher: ReplicaFetcher, size_bytes: int) -> None:
        """So many bytes of throttled replicas were copied: those of this leader that are behind may
        have to wait.
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
        self._broker.loop.call_later(min(pause_s, LONGEST_PAUSE_S), self._go_on, fetcher, behind)

    def _go_on(self, fetcher: ReplicaFetcher, held: list[Followed]) -> None:
        pause_s = self._pause_s()
        if pause_s > 0:
            self._broker.loop.call_later(min(pause_s, LONGEST_PAUSE_S), self._go_on, fetcher, held)
            return
        for each in held:
            fetcher.release(each)

    def _pause_s(self) -> float:
        if self._rate == NO_RATE:
            return 0.0
        return self._measured.throttle_ms(self._rate, self._now_ms()) / 1000

    def _now_ms(self) -> float:
        return self._broker.loop.time() * 1000

    # ---- what is set ----

    def _look(self) -> None:
        self._timer = self._broker.loop.call_later(LOOK_S, self._look)
        self._look_as_leader()
        before, self._rate = self._rate, rate_set(self._broker, SIDE)
        if before == self._rate == NO_RATE:
            return
        for each in self._broker.fetchers.copies():
            each.throttled = self.applies(each)

    def _look_as_leader(self) -> None:
        if self._leader is None and rate_set(self._broker, "leader") != NO_RATE:
            from kstore.broker.runtime.replication.leader_throttle import LeaderThrottle

            self._leader = LeaderThrottle(self._broker)
        if self._leader is not None:
            self._leader.look()

    def _is_named(self, followed: Followed) -> bool:
        return named_replica(self._broker, SIDE, followed.key.topic, followed.key.partition)


def new_rate(broker: Broker) -> SampledRate:
    """A rate measured as is set for replication."""
    window_ms = broker.config["replication.quota.window.size.seconds"] * 1000
    return SampledRate(broker.config["replication.quota.window.num"], window_ms)


def rate_set(broker: Broker, side: str) -> int:
    """The rate of a side ("leader", "follower") in bytes per second, or NO_RATE."""
    name = f"{side}.replication.throttled.rate"
    mine = broker.configs.brokers.get(str(broker.node_id), {})
    text = mine.get(name, broker.configs.cluster.get(name))
    return NO_RATE if text is None else int(text)


def named_replica(broker: Broker, side: str, topic: str, index: int) -> bool:
    """Whether the topic names this broker's replica of a partition for a side's throttle."""
    image = broker.image.topics.get(topic)
    text = "" if image is None else image.configs.get(f"{side}.replication.throttled.replicas", "")
    return names_replica([word.strip() for word in text.split(",")], index, broker.node_id)
