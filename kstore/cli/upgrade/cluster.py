"""What `kstore upgrade check` requests from a running cluster: versions, features, settings,
replicas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kstore.broker.state.metadata.features import FEATURES
from kstore.cli.upgrade.finding import Finding
from kstore.clients.admin import ConfigSource
from kstore.config import BROKER_CONFIGS, ConfigError
from kstore.config.broker_configs import ALIASES, listener_base
from kstore.config.nearest import did_you_mean
from kstore.config.no_effect import NO_EFFECT, REFUSED
from kstore.config.properties import parse_properties
from kstore.protocol.registry import APIS

if TYPE_CHECKING:
    from kstore.clients import AdminClient

__all__ = ["check_cluster", "check_settings_file"]

LISTENER_PREFIX = "listener.name."


def check_cluster(admin: AdminClient) -> Iterator[Finding]:
    """Each broker's versions and settings, the cluster's features, and partitions that are not
    fully replicated.
    """
    versions = admin.describe_api_versions()
    for node_id, theirs in sorted(versions.items()):
        yield from _check_versions(node_id, theirs)
    yield from _check_features(admin)
    for node_id in sorted(versions):
        yield from _check_settings(admin, node_id)
    yield from _check_replicas(admin)


def _check_versions(node_id: int, theirs: Mapping[int, tuple[int, int]]) -> Iterator[Finding]:
    apart = 0
    for key, (lowest, highest) in sorted(theirs.items()):
        api = APIS.get(key)
        if api is None or (lowest <= api.max_version and api.min_version <= highest):
            continue
        apart += 1
        yield Finding(
            "protocol", f"broker {node_id}: {api.name}", f"{lowest} to {highest}",
            f"{api.min_version} to {api.max_version}", good=False,
            advice="no common version: upgrade in steps, with a version between the two",
        )  # fmt: skip
    if not apart:
        yield Finding(
            "protocol", f"broker {node_id}", f"{len(theirs)} APIs", "a version of each", good=True
        )


def _check_features(admin: AdminClient) -> Iterator[Finding]:
    for name, level in sorted(admin.describe_features().finalized.items()):
        ours = FEATURES.get(name)
        good = ours is not None and level.highest <= ours.max_level
        known = "none" if ours is None else f"{ours.min_level} to {ours.max_level}"
        advice = "" if good else f"lower it first: kstore feature update {name}=LEVEL"
        yield Finding("feature", name, str(level.highest), known, good, advice)


def _check_settings(admin: AdminClient, node_id: int) -> Iterator[Finding]:
    gone = 0
    for name, entry in sorted(admin.describe_configs(str(node_id), resource="broker").items()):
        if entry.source != ConfigSource.STATIC_BROKER or _is_setting(name):
            continue
        gone += 1
        yield Finding(
            "setting", f"broker {node_id}: {name}", str(entry.value), "none", good=False,
            advice=f"remove it from the broker's settings{did_you_mean(name, BROKER_CONFIGS)}",
        )  # fmt: skip
    if not gone:
        yield Finding("setting", f"broker {node_id}", "all known", "all known", good=True)


def _is_setting(name: str) -> bool:
    if name.startswith(LISTENER_PREFIX):
        name = listener_base(name.removeprefix(LISTENER_PREFIX).partition(".")[2]) or name
    return name not in REFUSED and (name in BROKER_CONFIGS or name in ALIASES or name in NO_EFFECT)


def _check_replicas(admin: AdminClient) -> Iterator[Finding]:
    total = 0
    behind = []
    for topic in admin.describe_topics():
        for partition in topic.partitions:
            total += 1
            if len(partition.isr) < len(partition.replicas) or partition.leader < 0:
                behind.append(f"{topic.name}-{partition.partition}")
    more = ", ..." if len(behind) > 3 else ""
    yield Finding(
        "replicas", f"{total} partitions",
        f"{len(behind)} under-replicated" + (f": {', '.join(behind[:3])}{more}" if behind else ""),
        "0 under-replicated", good=not behind,
        advice="wait until all replicas are in sync, before each broker" if behind else "",
    )  # fmt: skip


def check_settings_file(path: str) -> Finding:
    """Whether this version accepts a broker's settings file."""
    from kstore.config import BrokerConfig

    try:
        BrokerConfig.load(path, environ={})
        with open(path, encoding="utf-8") as file:
            names = [entry.key for entry in parse_properties(file.read(), path)]
    except ConfigError as error:
        return Finding("setting", path, str(error), "all known", good=False, advice="change it")
    gone = [name for name in names if not _is_setting(name)]
    if gone:
        advice = "remove unknown settings: they have no effect"
        return Finding("setting", path, ", ".join(gone), "none", good=False, advice=advice)
    return Finding("setting", path, "all known", "all known", good=True)
