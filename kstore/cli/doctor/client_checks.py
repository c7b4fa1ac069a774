"""Checks of a client's settings file: unknown settings, settings that are refused, and settings
that contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kstore.cli.doctor.findings import Check, Finding, Limits, Severity
from kstore.config import ConfigError
from kstore.config.client.configs import (
    CLIENT_CONFIGS,
    NO_EFFECT,
    ClientKind,
    ClientSettings,
    client_settings,
)
from kstore.config.properties import parse_properties

__all__ = ["CLIENT_CHECKS", "CLIENT_RULES", "ClientFile", "ClientRule"]

ERROR, WARNING = Severity.ERROR, Severity.WARNING
JAVA_ONLY = frozenset(
    {"key.serializer", "value.serializer", "key.deserializer", "value.deserializer"}
)
"""Settings of a file that a Java client also reads."""


class ClientFile:
    """The settings of a client.properties. Raises ConfigError for a file that is not one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        entries = parse_properties(path.read_text(encoding="utf-8"), str(path))
        self.lines = {entry.key: entry.line for entry in entries}
        self.given = {entry.key: entry.value for entry in entries}

    def of(self, kind: ClientKind) -> dict[str, str]:
        """The settings of this kind of client."""
        return {name: text for name, text in self.given.items() if name in CLIENT_CONFIGS[kind]}


def _begins(config: ClientSettings, prefix: str) -> bool:
    return any(name.startswith(prefix) for name in config.given)


class ClientRule(NamedTuple):
    """Some settings of a kind of client, and when they contradict each other."""

    kind: ClientKind
    settings: tuple[str, ...]
    contradict: Callable[[ClientSettings], bool]
    severity: Severity
    meaning: str
    fix: str


CLIENT_RULES: tuple[ClientRule, ...] = (
    ClientRule(
        "producer", ("delivery.timeout.ms", "linger.ms", "request.timeout.ms"),
        lambda config: (
            "delivery.timeout.ms" in config.given
            and config["delivery.timeout.ms"] < config["linger.ms"] + config["request.timeout.ms"]
        ),
        ERROR,
        "The producer refuses this: a record would expire before its first answer can come.",
        "raise delivery.timeout.ms to at least linger.ms + request.timeout.ms",
    ),
    ClientRule(
        "producer", ("acks", "enable.idempotence"),
        lambda config: (
            config["acks"] != "all"
            and "enable.idempotence" in config.given
            and config["enable.idempotence"]
        ),
        ERROR, "The producer refuses this: idempotence needs acks=all.", "set acks=all",
    ),
    ClientRule(
        "producer", ("transactional.id", "enable.idempotence"),
        lambda config: bool(config["transactional.id"]) and not config["enable.idempotence"],
        ERROR, "The producer refuses this: transactions need idempotence.",
        "remove enable.idempotence=false",
    ),
    ClientRule(
        "producer", ("max.request.size", "buffer.memory"),
        lambda config: config["max.request.size"] > config["buffer.memory"], ERROR,
        "A record larger than buffer.memory can never be sent.",
        "raise buffer.memory above max.request.size",
    ),
    ClientRule(
        "consumer", ("heartbeat.interval.ms", "session.timeout.ms"),
        lambda config: config["heartbeat.interval.ms"] >= config["session.timeout.ms"], ERROR,
        "The consumer is removed from its group before its next heartbeat.",
        "set heartbeat.interval.ms to a third of session.timeout.ms",
    ),
    ClientRule(
        "consumer", ("fetch.max.wait.ms", "request.timeout.ms"),
        lambda config: config["fetch.max.wait.ms"] >= config["request.timeout.ms"], ERROR,
        "A fetch from a quiet partition times out before the broker answers it.",
        "lower fetch.max.wait.ms",
    ),
    ClientRule(
        "consumer", ("fetch.min.bytes", "fetch.max.bytes"),
        lambda config: config["fetch.min.bytes"] > config["fetch.max.bytes"], WARNING,
        "An answer never has so many bytes, so each fetch waits for fetch.max.wait.ms.",
        "lower fetch.min.bytes",
    ),
    ClientRule(
        "admin", ("default.api.timeout.ms", "request.timeout.ms"),
        lambda config: config["default.api.timeout.ms"] < config["request.timeout.ms"], WARNING,
        "A call gives up before one slow broker's answer may come, so no other broker is asked.",
        "raise default.api.timeout.ms above request.timeout.ms",
    ),
    ClientRule(
        "admin", ("security.protocol", "sasl.mechanism"),
        lambda config: (
            not config["security.protocol"].startswith("SASL_") and _begins(config, "sasl.")
        ),
        WARNING, "Without a SASL protocol the client does not log in: no sasl. setting has effect.",
        "set security.protocol=SASL_SSL",
    ),
    ClientRule(
        "admin", ("security.protocol", "ssl.truststore.location"),
        lambda config: (
            not config["security.protocol"].endswith("SSL") and _begins(config, "ssl.")
        ),
        WARNING, "Without a TLS protocol no ssl. setting has an effect: nothing is encrypted.",
        "set security.protocol=SSL or SASL_SSL",
    ),
    ClientRule(
        "admin", ("security.protocol", "ssl.endpoint.identification.algorithm"),
        lambda config: (
            config["security.protocol"].endswith("SSL")
            and not config["ssl.endpoint.identification.algorithm"]
        ),
        WARNING, "The broker's name is not checked against its certificate: others can pose as it.",
        "remove ssl.endpoint.identification.algorithm",
    ),
)  # fmt: skip


def settings(client: ClientFile, limits: Limits) -> Iterator[Finding]:
    """Unknown names, values that are refused, and settings without effect."""
    for name, text in client.given.items():
        where = f"{client.path} line {client.lines[name]}"
        if name in NO_EFFECT:
            yield Finding(
                WARNING, name, f"{where} sets it to {text}", f"No effect here: {NO_EFFECT[name]}.",
                "remove the line, unless another client reads it",
            )  # fmt: skip
        elif name not in JAVA_ONLY:
            yield from _refusal(name, text, where)


def _refusal(name: str, text: str, where: str) -> Iterator[Finding]:
    kinds: list[ClientKind] = [kind for kind, rows in CLIENT_CONFIGS.items() if name in rows]
    try:
        client_settings(kinds[0] if kinds else "consumer", {name: text})
    except ConfigError as problem:
        meaning = "A client does not start with it." if kinds else "kstore's clients refuse it."
        yield Finding(
            ERROR if kinds else WARNING, name, f"{where}: {problem}", meaning, "correct the line"
        )


def contradictions(client: ClientFile, limits: Limits) -> Iterator[Finding]:
    """Each rule that the settings in the file violate; defaults alone violate none."""
    for rule in CLIENT_RULES:
        try:
            config = client_settings(rule.kind, client.of(rule.kind))
        except ConfigError:
            continue  # `settings` reports it
        if rule.contradict(config):
            yield Finding(
                rule.severity, f"{rule.kind} {rule.settings[0]}",
                ", ".join(f"{name}={_shown(config, name)}" for name in rule.settings),
                rule.meaning, rule.fix,
            )  # fmt: skip


def _shown(config: Mapping[str, Any], name: str) -> str:
    value = config[name]
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return "(not set)" if value is None else text or "(empty)"


CLIENT_CHECKS: tuple[Check[ClientFile], ...] = (
    Check("client-settings", "a client's settings that are unknown or refused", settings),
    Check("client-contradictions", "a client's settings that contradict each other",
          contradictions),
)  # fmt: skip
