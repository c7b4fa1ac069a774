"""Kafka's settings that kstore ignores, refuses, or gives another default, from the tables of
kstore.config.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from kstore.config.broker_configs import BROKER_CONFIGS
from kstore.config.definition import ConfigDef
from kstore.config.group_configs import GROUP_CONFIGS
from kstore.config.no_effect import DYNAMIC_ONLY, NO_EFFECT, REFUSED
from kstore.config.topic_configs import TOPIC_CONFIGS

__all__ = ["DEFAULTS", "defaults", "no_effect", "refused"]

MARK = "No effect here: "
DEFAULTS = {
    "listeners": (
        "`PLAINTEXT://:9092`",
        "No other machine can connect by accident, and clients can reach the advertised name.",
    ),
    "log.dirs": ("`/tmp/kafka-logs`", "Data in `/tmp` gets lost."),
    "offsets.topic.replication.factor": (
        "`3`",
        "A single broker has one replica. In a cluster the default is 3, or the number of brokers "
        "if that is smaller.",
    ),
    "transaction.state.log.replication.factor": (
        "`3`",
        "The same as for `offsets.topic.replication.factor`.",
    ),
    "transaction.state.log.min.isr": (
        "`2`",
        "A single broker has one replica. In a cluster of three or more brokers the default is 2.",
    ),
    "share.coordinator.state.topic.replication.factor": (
        "`3`",
        "The same as for `offsets.topic.replication.factor`.",
    ),
    "share.coordinator.state.topic.min.isr": (
        "`2`",
        "The same as for `transaction.state.log.min.isr`.",
    ),
    "node.id": ("none", "A broker can start without a settings file."),
    "log.dir": (
        "a separate setting",
        "It is an alias of `log.dirs`: there is one setting for the location of the data.",
    ),
}
"""Settings whose default is not Kafka's: Kafka's default, and why kstore has another one."""
HERE = {
    "listeners": "`PLAINTEXT://localhost:9092`",
    "log.dirs": "`kstore/data` in the user's data folder",
    "log.dir": "that of `log.dirs`",
}


def _grouped(rows: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(setting, ...) and reason, for each reason; in the order of the tables."""
    names: dict[str, list[str]] = {}
    for name, why in rows.items():
        names.setdefault(why[0].upper() + why[1:], []).append(name)
    for why, found in names.items():
        yield ", ".join(f"`{name}`" for name in sorted(found)), f"{why}."


def _ignored(table: Mapping[str, ConfigDef]) -> dict[str, str]:
    return {
        row.name: row.documentation.removeprefix(MARK).removesuffix(".")
        for row in table.values()
        if row.documentation.startswith(MARK)
    }


def no_effect() -> Iterator[tuple[str, str, str]]:
    """Settings that have no effect, what they are settings of, and why."""
    tables = (
        ("broker", dict(chain(NO_EFFECT.items(), DYNAMIC_ONLY.items()))),
        ("topic", TOPIC_CONFIGS),
        ("group", GROUP_CONFIGS),
    )
    for kind, table in tables:
        for names, why in _grouped(_ignored(table)):
            yield names, kind, why


def refused() -> Iterator[tuple[str, str]]:
    """Settings that are refused, and what to do instead."""
    return _grouped({name: instead for name, (_, instead) in REFUSED.items()})


def defaults() -> Iterator[tuple[str, str, str, str]]:
    """Settings with another default: the setting, kstore's, Kafka's, and why."""
    for name, (kafka, why) in DEFAULTS.items():
        here = HERE.get(name) or f"`{BROKER_CONFIGS[name].default}`"
        yield f"`{name}`", kafka, here, why
