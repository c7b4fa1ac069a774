"""How much copying may cost (KIP-73): the replicas that are named for it are copied within a rate
while they are behind. One that is in sync is never slowed down.

The rate is a broker config of a running cluster, the replicas a topic config; both are looked at
every second, and while there is no rate nothing else happens here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.broker.state.follower import names_replica
from kstore.broker.state.rates import SampledRate

if TYPE_CHECKING:
    import asyncio

    from kstore._fast.replica_fetcher import ReplicaFetcher
    from kstore._fast.replica_session import Followed
    from kstore.broker.runtime.broker import Broker

__all__ = ["ReplicaThrottles"]

RATE = "follower.replication.throttled.rate"
REPLICAS = "follower.replication.throttled.replicas"
NO_RATE = -1
LOOK_S = 1.0
LONGEST_PAUSE_S = 1.0


class ReplicaThrottles:
    """The throttle of a broker's fetchers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._rate = NO_RATE
        self._measured = SampledRate()
        self._timer: asyncio.TimerHandle | None = broker.loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def applies(self, followed: Followed) -> bool:
        """Whether what comes of a partition counts."""
        self._rate = self._find_rate()
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
        before, self._rate = self._rate, self._find_rate()
        if before == self._rate == NO_RATE:
            return
        for each in self._broker.fetchers.copies():
            each.throttled = self.applies(each)

    def _find_rate(self) -> int:
        configs = self._broker.configs
        mine = configs.brokers.get(str(self._broker.node_id), {})
        text = mine.get(RATE, configs.cluster.get(RATE))
        return NO_RATE if text is None else int(text)

    def _is_named(self, followed: Followed) -> bool:
        topic = self._broker.image.topics.get(followed.key.topic)
        text = "" if topic is None else topic.configs.get(REPLICAS, "")
        words = [word.strip() for word in text.split(",")]
        return names_replica(words, followed.key.partition, self._broker.node_id)
