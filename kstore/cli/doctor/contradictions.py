"""Settings of a broker that contradict each other, as a table of rules. A value that is invalid
alone is refused when the settings are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kstore.cli.doctor.findings import Check, Finding, Limits, Severity
from kstore.cli.doctor.machine import Machine
from kstore.config import BrokerConfig, ConfigError

__all__ = ["RULES", "SETTINGS_CHECKS", "Rule", "refused_settings"]

ERROR, WARNING = Severity.ERROR, Severity.WARNING


class Rule(NamedTuple):
    """Some settings, and when they contradict each other."""

    settings: tuple[str, ...]
    contradict: Callable[[BrokerConfig], bool]
    severity: Severity
    meaning: str
    fix: str


def _more(larger: str, smaller: str) -> Callable[[BrokerConfig], bool]:
    """Whether one setting is more than another; -1 and None mean no limit."""

    def compare(config: BrokerConfig) -> bool:
        left, right = config[larger], config[smaller]
        return left is not None and right is not None and right >= 0 and left > right

    return compare


def _loopback(config: BrokerConfig) -> bool:
    hosts = [each.host for each in config.advertised_listeners]
    others = bool(config["zookeeper.connect"]) or any(
        each.host in {"", "0.0.0.0", "::"} for each in config.listeners
    )
    return others and all(host in {"localhost", "127.0.0.1", "::1"} for host in hosts)


def _nobody_may(config: BrokerConfig) -> bool:
    return bool(
        config["authorizer.class.name"]
        and not config["super.users"]
        and not config["allow.everyone.if.no.acl.found"]
    )


def _open_http(config: BrokerConfig) -> bool:
    url = config["kstore.http.listener"] or ""
    local = ("http://127.", "http://localhost", "http://[::1]")
    return bool(url) and not config["kstore.http.token"] and not url.startswith(local)


def _retention_below_roll(config: BrokerConfig) -> bool:
    defaults = config.topic_defaults()
    retention = int(defaults["retention.ms"])
    return 0 <= retention < int(defaults["segment.ms"])


def _retention_below_segment(config: BrokerConfig) -> bool:
    defaults = config.topic_defaults()
    return 0 <= int(defaults["retention.bytes"]) < int(defaults["segment.bytes"])


RULES: tuple[Rule, ...] = (
    Rule(
        ("min.insync.replicas", "default.replication.factor"),
        _more("min.insync.replicas", "default.replication.factor"), ERROR,
        "Writes with acks=all to new topics fail: they never have enough in-sync replicas.",
        "raise default.replication.factor to more than min.insync.replicas",
    ),
    Rule(
        ("transaction.state.log.min.isr", "transaction.state.log.replication.factor"),
        _more("transaction.state.log.min.isr", "transaction.state.log.replication.factor"), ERROR,
        "No transaction can be written: __transaction_state never has enough in-sync replicas.",
        "raise transaction.state.log.replication.factor to more than the min.isr",
    ),
    Rule(
        ("min.insync.replicas", "unclean.leader.election.enable"),
        lambda config: (
            config["min.insync.replicas"] > 1 and config["unclean.leader.election.enable"]
        ),
        WARNING,
        "min.insync.replicas asks for safety, and unclean elections lose acknowledged records.",
        "set unclean.leader.election.enable=false",
    ),
    Rule(
        ("message.max.bytes", "socket.request.max.bytes"),
        _more("message.max.bytes", "socket.request.max.bytes"), ERROR,
        "Batches between the two sizes are allowed, but their requests fail.",
        "raise socket.request.max.bytes above message.max.bytes",
    ),
    Rule(
        ("log.retention.bytes", "log.segment.bytes"), _retention_below_segment, WARNING,
        "Only whole segments are deleted, so a partition keeps at least log.segment.bytes.",
        "lower log.segment.bytes below log.retention.bytes",
    ),
    Rule(
        ("log.retention.ms", "log.roll.ms"), _retention_below_roll, WARNING,
        "Only whole segments are deleted, so a quiet partition keeps records for log.roll.ms.",
        "lower log.roll.ms below the retention",
    ),
    Rule(
        ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
        _more("group.min.session.timeout.ms", "group.max.session.timeout.ms"), ERROR,
        "No classic consumer can join a group: each session timeout is refused.",
        "lower group.min.session.timeout.ms",
    ),
    Rule(
        ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
        lambda config: (
            config["group.consumer.heartbeat.interval.ms"]
            >= config["group.consumer.session.timeout.ms"]
        ),
        ERROR, "Members are removed before their next heartbeat.",
        "set group.consumer.heartbeat.interval.ms to a third of the session timeout",
    ),
    Rule(
        ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
        lambda config: config["replica.fetch.wait.max.ms"] >= config["replica.lag.time.max.ms"],
        ERROR, "Followers of quiet partitions leave the ISR and come back, again and again.",
        "lower replica.fetch.wait.max.ms to 500",
    ),
    Rule(
        ("super.users", "authorizer.class.name"), _nobody_may, ERROR,
        "No principal may do anything, and none may add an ACL to change that.",
        "set super.users=User:NAME",
    ),
    Rule(
        ("advertised.listeners", "listeners"), _loopback, WARNING,
        "Clients and brokers on other machines are sent to an address of their own machine.",
        "set advertised.listeners=PLAINTEXT://NAME:PORT with a name that they can reach",
    ),
    Rule(
        ("kstore.http.listener", "kstore.http.token"), _open_http, ERROR,
        "The broker does not start: other machines can reach this address, and there is no token.",
        "set kstore.http.token, or listen on http://127.0.0.1:PORT",
    ),
)  # fmt: skip


def contradictions(machine: Machine, limits: Limits) -> Iterator[Finding]:
    """Each rule that is violated."""
    for rule in RULES:
        if rule.contradict(machine.config):
            shown = [f"{name}={_shown(machine.config, name)}" for name in rule.settings]
            evidence = ", ".join(shown)
            yield Finding(rule.severity, rule.settings[0], evidence, rule.meaning, rule.fix)


def _shown(config: BrokerConfig, name: str) -> str:
    value = config.text(name)
    source = config.source(name)
    return f"{value or '(empty)'} ({source})"


def unknown_settings(machine: Machine, limits: Limits) -> Iterator[Finding]:
    """Warnings from reading the settings."""
    for warning in machine.config.warnings:
        name = warning.split(" ", 1)[0]
        yield Finding(
            WARNING, name, warning, "The broker runs as if the line were not there.",
            f"remove {name}, or correct its name (kstore serve {machine.path} --config-print)",
        )  # fmt: skip


def refused_settings(problem: ConfigError) -> Finding:
    """The only finding if the settings cannot be read."""
    return Finding(
        ERROR, problem.key or "settings", str(problem),
        "A broker does not start with these settings. Nothing else was checked.",
        "correct the line, then run kstore doctor again",
    )  # fmt: skip


SETTINGS_CHECKS: tuple[Check[Machine], ...] = (
    Check("settings", "settings that are unknown or without effect", unknown_settings),
    Check("contradictions", "settings that contradict each other", contradictions),
)
