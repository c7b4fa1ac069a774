"""Asks the cluster, and the named HTTP listeners, for one sample."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kstore.cli.doctor.cluster import ClusterView
from kstore.cli.top.http_pages import Page, read_page
from kstore.cli.top.sample import BrokerSample, GroupSample, Sample, TopicSample
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.clients import AdminClient

__all__ = ["MAX_GROUPS", "Sampler"]

MAX_GROUPS = 200
"""Each group costs a request."""


class Sampler:
    """Samples one cluster. ``urls``: HTTP listeners of its brokers."""

    def __init__(self, admin: AdminClient, urls: Sequence[str] = (), token: str | None = None):
        self._admin = admin
        self._urls = urls
        self._token = token

    def take(self) -> Sample:
        """One sample. Raises KafkaError or HttpPageError."""
        view = ClusterView(self._admin, [], max_groups=MAX_GROUPS)
        pages = {page.node_id: page for page in (read_page(u, self._token) for u in self._urls)}
        leaders = {
            TopicPartition(topic.name, row.partition): row.leader
            for topic in view.topics
            for row in topic.partitions
        }
        ends = view.ends  # rates count from this moment
        unix_s, monotonic_s = time.time(), time.monotonic()
        return Sample(
            unix_s,
            monotonic_s,
            _brokers(view, leaders, pages),
            _topics(view, leaders),
            {
                group_id: GroupSample(
                    view.groups[group_id].state,
                    len(view.groups[group_id].members),
                    sum(max(ends[tp] - at, 0) for tp, at in committed.items() if tp in ends),
                    committed,
                )
                for group_id, committed in view.committed.items()
            },
            leaders,
            view.left_out_groups,
        )


def _brokers(
    view: ClusterView, leaders: dict[TopicPartition, int], pages: dict[int, Page]
) -> dict[int, BrokerSample]:
    led = Counter(leaders.values())
    replicas = Counter(
        node_id for topic in view.topics for row in topic.partitions for node_id in row.replicas
    )
    found = {}
    for broker in view.cluster.brokers:
        dirs = view.log_dirs.get(broker.node_id, {}).values()
        page = pages.get(broker.node_id, Page(broker.node_id, {}, ()))
        found[broker.node_id] = BrokerSample(
            f"{broker.host}:{broker.port}",
            broker.node_id == view.cluster.controller_id,
            led[broker.node_id],
            replicas[broker.node_id],
            sum(size.size_bytes for each in dirs for size in each.replicas.values()),
            min((each.usable_bytes for each in dirs if each.usable_bytes >= 0), default=0),
            page.counters,
            page.holds,
        )
    return found


def _topics(view: ClusterView, leaders: dict[TopicPartition, int]) -> dict[str, TopicSample]:
    sizes = {
        tp: size.size_bytes
        for node_id, dirs in view.log_dirs.items()
        for each in dirs.values()
        for tp, size in each.replicas.items()
        if leaders.get(tp) == node_id and not size.is_future
    }
    found = {}
    for topic in view.topics:
        partitions = [TopicPartition(topic.name, row.partition) for row in topic.partitions]
        found[topic.name] = TopicSample(
            {tp: view.ends[tp] for tp in partitions if tp in view.ends},
            {tp: sizes[tp] for tp in partitions if tp in sizes},
            len(partitions),
            sum(row.leader not in view.alive for row in topic.partitions),
            sum(len(row.isr) < len(row.replicas) for row in topic.partitions),
        )
    return found
