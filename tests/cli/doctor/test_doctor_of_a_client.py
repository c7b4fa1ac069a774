"""`kstore doctor --client-config`: a client's settings, before anything is connected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kstore.cli.app import run
from kstore.cli.doctor.checks import CLIENT_CHECKS, examine
from kstore.cli.doctor.client_checks import CLIENT_RULES, ClientFile
from kstore.cli.doctor.findings import Finding, Limits
from kstore.config.client.configs import client_settings
from tests.cli.doctor.conftest import findings

# The settings of a rule -> values that break it.
BROKEN: dict[tuple[str, ...], dict[str, str]] = {
    ("delivery.timeout.ms", "linger.ms", "request.timeout.ms"): {"delivery.timeout.ms": "1000"},
    ("acks", "enable.idempotence"): {"acks": "1", "enable.idempotence": "true"},
    ("transactional.id", "enable.idempotence"): {
        "transactional.id": "t", "enable.idempotence": "false"
    },
    ("max.request.size", "buffer.memory"): {"buffer.memory": "1000"},
    ("heartbeat.interval.ms", "session.timeout.ms"): {"session.timeout.ms": "3000"},
    ("fetch.max.wait.ms", "request.timeout.ms"): {"fetch.max.wait.ms": "30000"},
    ("fetch.min.bytes", "fetch.max.bytes"): {"fetch.min.bytes": "2000", "fetch.max.bytes": "1000"},
    ("default.api.timeout.ms", "request.timeout.ms"): {"default.api.timeout.ms": "1000"},
    ("security.protocol", "sasl.mechanism"): {"sasl.mechanism": "PLAIN"},
    ("security.protocol", "ssl.truststore.location"): {"ssl.truststore.location": "ca.pem"},
    ("security.protocol", "ssl.endpoint.identification.algorithm"): {
        "security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "",
    },
}  # fmt: skip


def find(folder: Path, check: str, settings: dict[str, str]) -> list[Finding]:
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return findings(examine(CLIENT_CHECKS, ClientFile(path), Limits(), [check]))


@pytest.mark.parametrize("rule", CLIENT_RULES, ids=lambda rule: " and ".join(rule.settings))
def test_settings_that_contradict_each_other_are_found(tmp_path: Path, rule) -> None:
    assert not rule.contradict(client_settings(rule.kind, {}))
    (found,) = find(tmp_path, "client-contradictions", BROKEN[rule.settings])
    assert (found.meaning, found.severity) == (rule.meaning, rule.severity)
    assert all(name in found.evidence for name in rule.settings)


def test_defaults_and_longer_requests_contradict_nothing(tmp_path: Path) -> None:
    """The producer raises delivery.timeout.ms itself if only the other setting is given."""
    assert find(tmp_path, "client-contradictions", {"client.id": "me"}) == []
    given = {"request.timeout.ms": "200000", "default.api.timeout.ms": "300000"}
    assert find(tmp_path, "client-contradictions", given) == []


def test_settings_that_nobody_knows_or_takes_are_found(tmp_path: Path) -> None:
    given = {
        "linger.ms": "soon", "fetch.min.byte": "1", "metric.reporters": "x",
        "key.serializer": "org.example.Serializer", "acks": "all",
    }  # fmt: skip
    found = find(tmp_path, "client-settings", given)
    assert [(each.severity, each.subject) for each in found] == [
        ("error", "linger.ms"), ("warning", "fetch.min.byte"), ("warning", "metric.reporters"),
    ]  # fmt: skip
    assert "client.properties line 1" in found[0].evidence
    assert "did you mean fetch.min.bytes" in found[1].evidence


def test_the_command_connects_with_these_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=127.0.0.1:1\nmax.poll.records=5\n")
    assert run(["doctor", "--client-config", str(path), "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["check"] for row in rows if row.get("severity") == "error"} == {
        "answer", "bootstrap",
    }  # fmt: skip
    assert "127.0.0.1:1: Connection refused" in rows[0]["evidence"]
    assert rows[-1]["summary"]["checks"] > len(CLIENT_CHECKS)
