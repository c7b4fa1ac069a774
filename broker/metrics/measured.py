"""The parts of a broker that the page of metrics covers, and the row of a plain counter or
gauge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kstore.broker.state.distribution import RecentValues, quantile_of
from kstore.broker.state.exposition import Family, Kind, Metrics, sample

if TYPE_CHECKING:
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore._fast.network.data_plane import DataPlane
    from kstore.broker.runtime.groups.group_coordinator import GroupCoordinator
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.loop_holds import LoopHolds
    from kstore.broker.runtime.membership.membership import Membership
    from kstore.broker.runtime.quotas.client_quota_manager import ClientQuotaManager
    from kstore.broker.runtime.security.security import Security
    from kstore.broker.runtime.shares.share_coordinator import ShareCoordinator
    from kstore.broker.runtime.shares.share_partition_manager import SharePartitionManager
    from kstore.broker.runtime.telemetry.client_metrics import Telemetry
    from kstore.broker.state.distribution import Distribution
    from kstore.broker.state.metadata.image import MetadataImage
    from kstore.config import BrokerConfig

__all__ = ["OTHERS", "Measured", "Row", "in_rows", "plain", "summary"]

OTHERS = "(others)"
"""The topic or group that stands for all that are not listed by name. No topic can have this
name.
"""


QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class Measured(Protocol):
    """The measured broker."""

    @property
    def config(self) -> BrokerConfig:
        """The settings."""

    @property
    def image(self) -> MetadataImage:
        """The metadata image."""

    @property
    def table(self) -> PartitionTable:
        """Topics and partitions."""

    @property
    def plane(self) -> DataPlane:
        """Requests and bytes."""

    @property
    def holds(self) -> LoopHolds:
        """What blocked the loop."""

    @property
    def log_manager(self) -> LogManager:
        """Logs and their damage."""

    @property
    def membership(self) -> Membership:
        """Leadership, and the controller's view."""

    @property
    def groups(self) -> Lazy[GroupCoordinator]:
        """The groups that it coordinates."""

    @property
    def share_partitions(self) -> Lazy[SharePartitionManager]:
        """The share-partitions that it leads."""

    @property
    def share_coordinator(self) -> Lazy[ShareCoordinator]:
        """The states of share groups that it keeps."""

    @property
    def quotas(self) -> Lazy[ClientQuotaManager]:
        """The quotas of clients."""

    @property
    def security(self) -> Security | None:
        """Authentications."""

    @property
    def telemetry(self) -> Lazy[Telemetry]:
        """The metrics that clients push."""


class Row(NamedTuple):
    """A family, and a function that reads the value of a sample from an object."""

    family: Family
    read: Callable[[Any], float]


def plain(name: str, kind: Kind, words: str, value: float) -> Metrics:
    """A family with one sample and no labels."""
    yield Family(name, kind, words)
    yield sample(name, value)


def summary(name: str, seen: Distribution, now_s: float, per: float, **labels: str) -> Metrics:
    """The samples of a family with quantiles over the last minutes, as Kafka's histograms have
    them. ``per``: how many units of the distribution are one unit of the page.
    """
    lately: RecentValues = seen.lately(now_s)
    for quantile in QUANTILES:
        value = min(quantile_of(lately.buckets, quantile), lately.largest)
        yield sample(name, value / per, **labels, quantile=f"{quantile:g}")
    yield sample(f"{name}_sum", seen.total / per, **labels)
    yield sample(f"{name}_count", seen.count, **labels)


def in_rows(rows: Iterable[Row], of: Mapping[tuple[tuple[str, str], ...], Any]) -> Metrics:
    """The family of each row, with a sample for each object. ``of``: labels to object."""
    for family, read in rows:
        yield family
        for labels, each in of.items():
            yield sample(family.name, read(each), **dict(labels))
