"""Settings in the coordination store that elections depend on: whether eligible leader replicas are
in use, and min.insync.replicas. Calls block.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kstore.broker.coordination import config_nodes, znodes
from kstore.broker.coordination.store import BadVersionError, Create, NodeExistsError, Op, Set
from kstore.broker.runtime.metadata.features import FEATURE_NODE
from kstore.broker.state.metadata.features import FEATURES

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Stat, Store

__all__ = ["MIN_INSYNC_REPLICAS", "ClusterSettings", "keep_min_isr", "read_settings", "writes_of"]

MIN_INSYNC_REPLICAS = "min.insync.replicas"
FOLDER = config_nodes.BROKER_CONFIGS
DEFAULTS = f"{FOLDER}/<default>"


class ClusterSettings(NamedTuple):
    """What the store has for the whole cluster."""

    elr_level: int
    """The finalized level of eligible.leader.replicas.version."""
    min_isr: int | None
    """min.insync.replicas for all brokers. None if not set."""
    writes: int
    """How often the settings for all brokers were written."""


def read_settings(store: Store) -> ClusterSettings:
    """Read the current settings of the whole cluster."""
    features, defaults = store.read_many([FEATURE_NODE, DEFAULTS])
    level = FEATURES[znodes.ELR_FEATURE].default_level
    if features is not None:
        level = json.loads(features[0])["features"].get(znodes.ELR_FEATURE, level)
    if defaults is None:
        return ClusterSettings(level, None, 0)
    text = json.loads(defaults[0])["config"].get(MIN_INSYNC_REPLICAS)
    return ClusterSettings(level, None if text is None else int(text), writes_of(defaults[1]))


def writes_of(stat: Stat) -> int:
    """How often a node was written, with its creation."""
    return stat.version + 1


def keep_min_isr(store: Store, value: int) -> None:
    """Set min.insync.replicas for all brokers if it is not set, as Kafka does. Eligibility depends
    on this setting, and brokers may have been started with different values.
    """
    [known] = store.read_many([DEFAULTS])
    op: Op
    if known is None:
        store.ensure(FOLDER)
        op = Create(DEFAULTS, config_nodes.config_node({MIN_INSYNC_REPLICAS: str(value)}))
    else:
        configs = json.loads(known[0])["config"]
        configs.setdefault(MIN_INSYNC_REPLICAS, str(value))
        op = Set(DEFAULTS, config_nodes.config_node(configs), known[1].version)
    with suppress(BadVersionError, NodeExistsError):  # another broker has set it
        store.multi([op])
