"""The problems that `kstore upgrade check` finds in a cluster that this version cannot
upgrade yet.
"""

from __future__ import annotations

from types import SimpleNamespace as Row
from typing import Any

from kstore.cli.upgrade.cluster import check_cluster
from kstore.clients.admin import ConfigSource
from kstore.clients.admin.cluster import FeatureRange

METADATA, PRODUCE = 3, 0


class Admin:
    """A cluster as an admin client describes it; with one problem of each type, or none."""

    def __init__(self, *, bad: bool) -> None:
        self.bad = bad

    def describe_api_versions(self) -> dict[int, dict[int, FeatureRange]]:
        newer = FeatureRange(200, 201) if self.bad else FeatureRange(0, 201)
        return {1: {METADATA: newer, PRODUCE: FeatureRange(3, 5), 31999: FeatureRange(0, 0)}}

    def describe_features(self) -> Any:
        level = 9 if self.bad else 2
        return Row(finalized={"transaction.version": FeatureRange(level, level)})

    def describe_configs(self, name: str, *, resource: str) -> dict[str, Any]:
        assert (name, resource) == ("1", "broker")
        given = Row(source=ConfigSource.STATIC_BROKER, value="1")
        own = Row(source=ConfigSource.STATIC_BROKER + 1, value="1")
        configs = {"log.dirs": given, "listener.name.a.ssl.keystore.location": given, "other": own}
        return configs | ({"log.gone": given} if self.bad else {})

    def describe_topics(self) -> list[Any]:
        isr = (1,) if self.bad else (1, 2)
        return [Row(name="t", partitions=[Row(partition=0, leader=1, replicas=(1, 2), isr=isr)])]


def test_a_cluster_that_can_be_taken_over() -> None:
    rows = list(check_cluster(Admin(bad=False)))  # type: ignore[arg-type]
    assert [row for row in rows if not row.good] == []
    assert {row.check for row in rows} == {"protocol", "feature", "setting", "replicas"}


def test_one_of_each_kind_that_is_not_good() -> None:
    rows = [row for row in check_cluster(Admin(bad=True)) if not row.good]  # type: ignore[arg-type]
    assert [(row.check, row.item, row.found) for row in rows] == [
        ("protocol", "broker 1: Metadata", "200 to 201"),
        ("feature", "transaction.version", "9"),
        ("setting", "broker 1: log.gone", "1"),
        ("replicas", "1 partitions", "1 under-replicated: t-0"),
    ]
    assert all(row.advice for row in rows)
