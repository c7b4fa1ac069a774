"""The page of metrics: all parts in order."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kstore.broker.metrics.clients import of_listeners, of_pushes, of_quotas
from kstore.broker.metrics.cluster import of_controller, of_replica_manager, of_waits
from kstore.broker.metrics.data_plane import of_cluster, of_logs, of_loop, of_plane, of_process
from kstore.broker.metrics.groups import of_groups
from kstore.broker.metrics.requests import RequestTimesPart
from kstore.broker.metrics.shares import of_shares
from kstore.broker.metrics.topics import SummedUp, of_partitions, of_topics, summed_up

if TYPE_CHECKING:
    from kstore.broker.metrics.loop_stall import LoopStall
    from kstore.broker.metrics.measured import Measured
    from kstore.broker.state.exposition import Metrics

__all__ = ["MetricsPage"]


class MetricsPage:
    """The page of one broker."""

    def __init__(self, broker: Measured, stall: LoopStall) -> None:
        self._broker = broker
        self._stall = stall
        self._requests = RequestTimesPart()
        self._start_s = time.time()

    def metrics(self, *, by_name: bool) -> Metrics:
        """All metrics. ``by_name``: also by topic, group and client, and the metrics that clients
        have pushed.
        """
        broker = self._broker
        left_out = SummedUp()
        yield from of_plane(broker)
        manager = broker.quotas.made
        throttles = None if manager is None else manager.throttles
        throttled_ms = {} if throttles is None else throttles.response_ms
        yield from self._requests.metrics(broker.plane, throttled_ms, time.monotonic())
        yield from of_waits(broker)
        yield from of_loop(broker, self._stall)
        yield from of_logs(broker.log_manager)
        seen = yield from of_cluster(broker)
        yield from of_controller(broker, seen)
        yield from of_replica_manager(broker)
        yield from of_topics(broker, left_out, by_name=by_name)
        if by_name:
            yield from of_partitions(broker, left_out)
        yield from of_groups(broker, left_out, by_name=by_name)
        yield from of_shares(broker, left_out, by_name=by_name)
        yield from of_listeners(broker)
        yield from of_quotas(broker, by_name=by_name)
        yield from of_process(self._start_s)
        yield from summed_up(left_out)
        yield from of_pushes(broker, by_name=by_name)
