"""The log of a running broker as JSON, with the requests that kafka-configs asks for."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kstore.broker_process import serve_command
from kstore.clients import AdminClient, NewTopic, Producer
from kstore.testing import Broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory):
    with Broker(tmp_path_factory.mktemp("logs"), {"kstore.logging.format": "json"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(broker: Broker):
    with AdminClient(bootstrap_servers=broker.bootstrap_servers, client_id="boss") as admin:
        yield admin


def events(broker: Broker) -> list[dict[str, Any]]:
    return [json.loads(line) for line in broker.log_path.read_text().splitlines()]


def configure(admin: AdminClient, **settings: str | None) -> None:
    changes = {f"kstore.{name}": value for name, value in settings.items()}
    admin.alter_configs("", changes, resource="broker")


def test_requests_are_logged_while_kafka_configs_asks_for_them(broker, admin):
    admin.create_topics([NewTopic("t", 1)])
    configure(admin, **{"request.log.rate": "1", "request.log.apis": "Produce"})
    with Producer(bootstrap_servers=broker.bootstrap_servers, client_id="me") as producer:
        producer.send("t", b"1").result()
        producer.send("t", b"2").result()
        # Its response comes after both earlier requests were logged.
        configure(admin, **{"request.log.rate": "0"})
        producer.send("t", b"3").result()
    told = [each for each in events(broker) if each["logger"] == "kstore.request"]
    assert [(each["api"], each["client_id"], each["answered"]) for each in told] == [
        ("Produce", "me", True),
        ("Produce", "me", True),
    ]
    assert {"time", "level", "message", "total_ms", "local_ms", "send_ms"} <= told[0].keys()


def test_the_level_of_the_request_log_is_set_by_kafka_configs(broker, admin):
    loggers = admin.describe_configs(str(broker.node_id), resource="broker-logger")
    assert {"kstore.request", "kstore.request.slow"} <= loggers.keys()


def test_what_a_client_did_wrong_is_one_event(broker):
    host, _, port = broker.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        sock.sendall(b"GET /\n\x1b[31m HTTP/1.1\r\n\r\n")
        while sock.recv(4096):
            pass
    assert any("closing the connection" in each["message"] for each in events(broker))


@pytest.mark.slow
def test_why_a_broker_did_not_start_is_an_event_too(broker, tmp_path: Path):
    command = serve_command(
        "--override=kstore.logging.format=json",
        f"--override=listeners=PLAINTEXT://{broker.address}",
        f"--override=log.dirs={tmp_path / 'data'}",
        isolated=False,
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    [told] = [json.loads(line) for line in done.stderr.splitlines()]
    assert told["level"] == "FATAL"
    assert f"port {broker.address.rpartition(':')[2]} is in use" in told["message"]
