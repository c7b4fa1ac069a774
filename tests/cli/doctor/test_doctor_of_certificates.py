"""`kstore doctor` and the TLS certificates of brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trustme

from kstore.cli.app import run
from kstore.cli.doctor.certificate_check import certificates
from kstore.cli.doctor.cluster import ClusterView
from kstore.cli.doctor.findings import Limits, Severity
from kstore.clients.admin import BrokerDescription
from kstore.config.client.configs import client_settings
from kstore.net.tls import client_context
from kstore.testing.brokers import Broker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    """A broker whose certificate ends in three days."""
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    other.cert_pem.write_to_path(folder / "other.pem")
    soon = datetime.now(UTC) + timedelta(days=3, minutes=10)
    leaf = authority.issue_cert("127.0.0.1", not_after=soon)
    leaf.private_key_and_cert_chain_pem.write_to_path(folder / "broker.pem")
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "broker.pem",
    }
    with Broker(folder / "broker", settings) as running:
        yield running


def rows(
    broker: Broker, trust: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[dict[str, Any]]]:
    code = run([
        "doctor", "-b", broker.bootstrap_servers, "-X", "security.protocol=SSL",
        "-X", "ssl.truststore.type=PEM", "-X", f"ssl.truststore.location={trust}",
        "-X", "default.api.timeout.ms=500", "--only", "certificates", "--json",
    ])  # fmt: skip
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_certificate_that_ends_soon_is_found(
    broker: Broker, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, (found, _) = rows(broker, folder / "ca.pem", capsys)
    assert (code, found["check"], found["severity"]) == (0, "certificates", "warning")
    assert found["subject"] == f"broker 1 {broker.address}"
    assert found["evidence"] == "its certificate expires in 3.0 days"


def test_a_certificate_that_this_client_refuses_is_found(
    broker: Broker, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then no broker answers, and the reason is in the first finding."""
    code, (found, *_) = rows(broker, folder / "other.pem", capsys)
    assert (code, found["check"], found["severity"]) == (1, "answer", "error")
    assert "certificate" in found["evidence"].lower()


def test_the_certificate_of_another_broker_may_be_refused(broker: Broker, folder: Path) -> None:
    settings = client_settings(
        "admin",
        {
            "security.protocol": "SSL", "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "other.pem"),
        },
    )  # fmt: skip
    host, _, port = broker.address.rpartition(":")
    view = SimpleNamespace(
        cluster=SimpleNamespace(brokers=[BrokerDescription(1, host, int(port))]),
        tls_context=lambda: client_context(settings),
    )
    (found,) = certificates(cast("ClusterView", view), Limits())
    assert found.severity == Severity.ERROR
    assert "CERTIFICATE_VERIFY_FAILED" in found.evidence
