"""The rules for settings of brokers, groups and client metrics, with Kafka's error for each
violation (KIP-133, KIP-226, KIP-339, KIP-714, KIP-848).

It computes the new settings and stores nothing. The rules for topics are in topic_rules.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from kstore.broker.state.linear_regex import regex_error
from kstore.config import BROKER_CONFIGS, ConfigDef, UpdateMode
from kstore.config.broker_configs import listener_base
from kstore.config.nearest import did_you_mean
from kstore.errors import ErrorCode

__all__ = [
    "Change",
    "ConfigRefusedError",
    "Operation",
    "apply_changes",
    "broker_row",
    "check_broker",
    "check_client_metrics",
    "check_cluster_default",
    "check_group",
    "replacing_changes",
]

MIN_INSYNC_REPLICAS = "min.insync.replicas"
OF_LISTENER = "listener.name."


class ConfigRefusedError(Exception):
    """The refusal of a setting: Kafka's error code and a message, or None without one."""

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Operation(IntEnum):
    """The operation of a change, by its number in IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One change of one setting that a client requests."""

    name: str
    operation: int
    value: str | None


def apply_changes(
    current: Mapping[str, str],
    changes: Sequence[Change],
    list_defaults: Mapping[str, str],
) -> dict[str, str]:
    """The settings after the changes.

    ``list_defaults`` has the values from which append and subtract start if nothing is set. A name
    that it does not have is not a list, so nothing can be appended.
    """
    for name, count in Counter(change.name for change in changes).items():
        if count > 1:
            raise ConfigRefusedError(
                ErrorCode.INVALID_REQUEST, f"{name} is changed {count} times; change it once."
            )
    configs = dict(current)
    for change in changes:
        if change.operation == Operation.DELETE:
            configs.pop(change.name, None)
            continue
        if change.value is None:
            raise ConfigRefusedError(
                ErrorCode.INVALID_REQUEST, f"{change.name} has no value; give one, or delete it."
            )
        if change.operation == Operation.SET:
            configs[change.name] = change.value
        else:
            configs[change.name] = _changed_list(configs, change, list_defaults.get(change.name))
    return configs


def _changed_list(configs: Mapping[str, str], change: Change, default: str | None) -> str:
    if change.operation not in {Operation.APPEND, Operation.SUBTRACT}:
        raise ConfigRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    word = Operation(change.operation).name
    if default is None:
        raise ConfigRefusedError(
            ErrorCode.INVALID_CONFIG,
            f"{word} is only for lists, and {change.name} is not a list; use SET.",
        )
    items = [item for item in configs.get(change.name, default).split(",") if item]
    given = [item.strip() for item in (change.value or "").split(",") if item.strip()]
    if change.operation == Operation.APPEND:
        items += [item for item in dict.fromkeys(given) if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)


def replacing_changes(
    current: Mapping[str, str], given: Sequence[tuple[str, str | None]]
) -> list[Change]:
    """The changes that replace all settings with the given ones (AlterConfigs, before KIP-339)."""
    changes = [Change(name, Operation.SET, value) for name, value in given]
    named = {name for name, _ in given}
    changes += [Change(name, Operation.DELETE, None) for name in current if name not in named]
    return changes


def broker_rows() -> list[str]:
    """The names that `broker_row` has a row for."""
    from kstore.config.no_effect import DYNAMIC_ONLY, NO_EFFECT, REFUSED

    return list(dict.fromkeys((*BROKER_CONFIGS, *REFUSED, *NO_EFFECT, *DYNAMIC_ONLY)))


def broker_row(name: str) -> ConfigDef | None:
    """Kafka's or kstore's row of a broker setting, including those that have no effect in
    kstore.
    """
    row = BROKER_CONFIGS.get(name)
    if row is not None:
        return row
    from kstore.config.no_effect import DYNAMIC_ONLY, NO_EFFECT, REFUSED

    refused = REFUSED.get(name)
    return refused[0] if refused else NO_EFFECT.get(name) or DYNAMIC_ONLY.get(name)


def check_broker(
    changes: Sequence[Change], configs: Mapping[str, str], now: Mapping[str, str], *, cluster: bool
) -> None:
    """Refuse settings that a running broker cannot change. As in Kafka, unknown names are accepted.

    ``cluster``: the settings are for all brokers. ``now`` has this broker's current settings from
    all sources.
    """
    if not cluster and any(change.name == MIN_INSYNC_REPLICAS for change in changes):
        raise ConfigRefusedError(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_INSYNC_REPLICAS} is the same for all brokers; change it without a broker id.",
        )
    for change in changes:
        if change.operation != Operation.DELETE:
            _check_broker_change(change.name, configs[change.name], now, cluster=cluster)


def _check_broker_change(name: str, text: str, now: Mapping[str, str], *, cluster: bool) -> None:
    from kstore.config.no_effect import REFUSED, THREAD_COUNTS

    if name.startswith(OF_LISTENER):
        _check_listener_change(name, text, cluster=cluster)
        return
    row = broker_row(name)
    if row is None:
        return
    problem = row.complaint(text)
    if row.update is UpdateMode.READ_ONLY:
        problem = (
            f"{name} can't change while the broker runs; set it in the settings file and restart."
        )
    elif name.startswith("ssl."):
        problem = f"{name} is set for each listener; set listener.name.<the listener>.{name}."
    elif cluster and row.update is UpdateMode.PER_BROKER:
        problem = f"{name} is set for each broker; change it with a broker id."
    elif name in REFUSED and text.strip() != row.format(row.default):
        problem = f"{name} can't be set: {REFUSED[name][1]}"
    elif problem is None and name in THREAD_COUNTS:
        known = now.get(name, "")
        problem = _check_threads(name, int(text), int(known) if _is_number(known) else row.default)
    if problem is not None:
        raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, problem)


def _check_listener_change(name: str, text: str, *, cluster: bool) -> None:
    """Check a listener's own setting. As in Kafka, a setting of an unknown listener is accepted."""
    rest = name.removeprefix(OF_LISTENER).partition(".")[2]
    base = listener_base(rest)
    if base is None:
        return
    row = BROKER_CONFIGS[base]
    problem = row.complaint(text)
    if cluster and row.update is not UpdateMode.CLUSTER_WIDE:
        problem = f"{name} is set for each broker; change it with a broker id."
    if problem is not None:
        raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, problem)


def _check_threads(name: str, requested: int, now: int) -> str | None:
    if requested > 2 * now:
        return f"{name}={requested} is more than twice the current {now}; increase it in steps."
    if requested < now // 2:
        return f"{name}={requested} is less than half of the current {now}; decrease it in steps."
    return None


def check_cluster_default(configs: Mapping[str, str]) -> None:
    """Refuse to remove a setting that the cluster needs (KIP-966)."""
    if MIN_INSYNC_REPLICAS not in configs:
        raise ConfigRefusedError(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_INSYNC_REPLICAS} must stay set for all brokers; give it another value instead.",
        )


def check_group(configs: Mapping[str, str], broker: Mapping[str, Any]) -> None:
    """Refuse a group's settings that are unknown, malformed, or outside the broker's limits.

    ``broker`` has the current values of the broker settings whose names begin with ``group.``.
    """
    from kstore.config.group_configs import GROUP_CONFIGS

    values: dict[str, Any] = {}
    for name, text in configs.items():
        row = GROUP_CONFIGS.get(name)
        if row is None:
            sentence = f"Groups have no setting '{name}'{did_you_mean(name, GROUP_CONFIGS) or '.'}"
            raise ConfigRefusedError(ErrorCode.INVALID_CONFIG, sentence)
        _refuse(row.complaint(text))
        values[name] = row.parse(text, "group config")
    for name, value in values.items():
        prefix, _, rest = name.partition(".")
        if name == "streams.num.standby.replicas":
            rest = "standby.replicas"
        low, high = f"group.{prefix}.min.{rest}", f"group.{prefix}.max.{rest}"
        if (bound := broker.get(low)) is not None and value < bound:
            _refuse(f"{name} is {value}, below the {bound} of the broker's {low}.")
        if (bound := broker.get(high)) is not None and value > bound:
            _refuse(f"{name} is {value}, above the {bound} of the broker's {high}.")
    _check_heartbeats(values, broker)


def _check_heartbeats(values: Mapping[str, Any], broker: Mapping[str, Any]) -> None:
    for kind in ("consumer", "streams", "share"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if session in values or heartbeat in values:
            longest = values.get(session, broker.get(f"group.{session}"))
            between = values.get(heartbeat, broker.get(f"group.{heartbeat}"))
            if longest is not None and between is not None and longest <= between:
                _refuse(
                    f"{session} is {longest}, and {heartbeat} {between}; the first must be longer."
                )


def check_client_metrics(configs: Mapping[str, str]) -> None:
    """Refuse a client metrics subscription that is malformed."""
    from kstore.config.client_metrics_configs import CLIENT_METRICS_CONFIGS, MATCH_KEYS

    for name, text in configs.items():
        row = CLIENT_METRICS_CONFIGS.get(name)
        if row is None:
            raise ConfigRefusedError(
                ErrorCode.INVALID_REQUEST, f"Client metrics have no setting '{name}'."
            )
        complaint = row.complaint(text)
        if complaint is not None and row.validator is not None and _is_number(text):
            raise ConfigRefusedError(ErrorCode.INVALID_REQUEST, complaint)
        _refuse(complaint)
        if name == "match":
            for item in row.parse(text, name):
                _check_match(item, MATCH_KEYS)


def _check_match(item: str, known: Sequence[str]) -> None:
    name, equals, pattern = item.partition("=")
    if not equals or "=" in pattern or name.strip() not in known:
        _refuse(
            f"'{item}' does not select clients; write NAME=REGEX, where NAME is one of "
            f"{', '.join(known)}."
        )
    problem = regex_error(pattern.strip())
    if problem is not None:
        _refuse(f"'{item}' does not have a valid RE2 expression: {problem}.")


def _is_number(text: str) -> bool:
    return text.strip().removeprefix("-").isdigit()


def _refuse(message: str | None) -> None:
    if message is not None:
        raise ConfigRefusedError(ErrorCode.INVALID_CONFIG, message)
