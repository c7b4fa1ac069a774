"""Which requests are logged, and their lines. The selection can change at run time."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstore.broker.runtime.request_log import request_lines
from kstore.broker.runtime.request_log.request_watch import RequestWatch
from kstore.config import BrokerConfig
from kstore.config.definition import ConfigError
from tests.broker.harness.plane_harness import Plane
from tests.fast.network.test_request_times import FETCH, PRODUCE, fetch, produce

OFFSET_OUT_OF_RANGE = 99


class Place:
    """A data plane with a RequestWatch, and what it logs."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture, **settings: str) -> None:
        self.plane = Plane(folder)
        self.config = BrokerConfig.load(None, {f"kstore.{k}": v for k, v in settings.items()})
        self.reports: list[str] = []
        node: Any = SimpleNamespace(
            config=self.config, loop=self.plane.loop, report=self.reports.append, node_id=1
        )
        self.watch = RequestWatch(node, self.plane.plane)
        self.client = self.plane.client()
        self._caplog = caplog
        caplog.set_level(logging.INFO, "kstore.request")

    def set(self, **settings: str) -> None:
        """Change settings in the way of kafka-configs."""
        self.config.set_dynamic({f"kstore.{k}": v for k, v in settings.items()}, {})

    def send(self, api_key: int = PRODUCE) -> list[logging.LogRecord]:
        """What is logged for one request that is answered at once."""
        request = produce() if api_key == PRODUCE else fetch(offset=OFFSET_OUT_OF_RANGE)
        self._caplog.clear()
        self.client.call(9 if api_key == PRODUCE else 11, request)
        self.plane.loop.turn()
        return list(self._caplog.records)


@pytest.fixture
def place(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    made: list[Place] = []

    def make(**settings: str) -> Place:
        made.append(Place(tmp_path / str(len(made)), caplog, **settings))
        return made[-1]

    yield make
    for each in made:
        each.plane.close()


def test_by_default_no_request_is_told(place):
    found = place()
    assert found.plane.plane.times.tell is None
    assert found.send() == []


def test_a_request_is_one_line_with_api_client_and_times(place):
    [record] = place(**{"request.log.rate": "1"}).send()
    text = record.getMessage()
    assert (record.name, record.levelname) == ("kstore.request", "INFO")
    assert text.startswith('request of Produce version 9 from client "me" (User:ANONYMOUS, ')
    assert " ms: " in text
    assert text.endswith(" bytes, correlation id 1")
    assert text.isprintable()


def test_a_request_brings_its_fields_for_json(place):
    [record] = place(**{"request.log.rate": "1"}).send()
    fields = record.fields
    parts = ("queue", "local", "disk", "remote", "behind", "send")
    assert fields["total_ms"] == pytest.approx(sum(fields[f"{part}_ms"] for part in parts))
    assert (fields["event"], fields["api"], fields["version"]) == ("request", "Produce", 9)
    assert (fields["client_id"], fields["answered"]) == ("me", True)
    assert fields["principal"] == "User:ANONYMOUS"
    assert fields["listener"] == "PLAINTEXT"


def test_the_rate_can_change_while_the_broker_runs(place):
    found = place()
    found.set(**{"request.log.rate": "1"})
    assert len(found.send()) == 1
    found.set(**{"request.log.rate": "0"})
    assert found.send() == []
    assert found.plane.plane.times.tell is None


def test_the_log_can_be_of_some_apis(place):
    found = place(**{"request.log.rate": "1", "request.log.apis": "Fetch,Metadata"})
    assert found.send(PRODUCE) == []
    assert len(found.send(FETCH)) == 1
    found.set(**{"request.log.apis": "Produce"})
    assert len(found.send(PRODUCE)) == 1


def test_the_log_can_be_of_some_clients(place):
    found = place(**{"request.log.rate": "1", "request.log.clients": "you"})
    assert found.send() == []
    found.set(**{"request.log.clients": "you,me"})
    assert len(found.send()) == 1


def test_an_api_that_there_is_not_is_told(place):
    found = place(**{"request.log.rate": "1", "request.log.apis": "Produce,Fetsch"})
    assert found.reports == [
        "kstore.request.log.apis names Fetsch, which is not an API: use Kafka's names, such as "
        "Produce"
        " or ConsumerGroupHeartbeat"
    ]


@pytest.mark.parametrize("rate", ["-0.1", "1.5", "often"])
def test_a_rate_is_from_0_to_1(rate):
    with pytest.raises(ConfigError, match=r"kstore\.request\.log\.rate"):
        BrokerConfig.load(None, {"kstore.request.log.rate": rate})


def test_a_slow_request_is_a_warning_whatever_the_rate_and_the_names(place):
    found = place(**{"slow.request.ms": "1", "request.log.apis": "Fetch"})
    found.plane.plane.times.slow_us = 1  # every request takes this long
    [record] = found.send(PRODUCE)
    assert (record.name, record.levelname) == ("kstore.request.slow", "WARNING")
    assert record.getMessage().startswith("slow request of Produce version 9 from client ")
    assert record.fields["event"] == "slow request"


def test_slow_is_by_the_setting_and_0_is_off(place):
    found = place(**{"slow.request.ms": "250"})
    assert found.plane.plane.times.slow_us == 250_000
    found.set(**{"slow.request.ms": "0"})
    assert found.plane.plane.times.slow_us == 0
    assert found.plane.plane.times.tell is None


def test_a_request_that_was_not_answered_says_so(place):
    found = place(**{"request.log.rate": "1"})
    found.client.send(11, fetch())
    found.client.connection.connection_lost(None)
    found._caplog.clear()
    found.plane.loop.turn()
    [record] = found._caplog.records
    assert record.getMessage().endswith("; the connection ended before the answer was sent")
    assert record.fields["answered"] is False


def test_a_client_id_cannot_forge_a_line_or_fill_the_log():
    assert request_lines.client_name(b"a\nb\x1b[31m\xff") == "a\\nb\\x1b[31m\ufffd"
    assert len(request_lines.client_name(b"x" * 10_000)) == 100
    assert request_lines.client_name(None) == ""


def test_too_many_lines_are_counted_instead(place, monkeypatch):
    monkeypatch.setattr(request_lines, "MAX_LINES", 2)
    found = place(**{"request.log.rate": "1"})
    assert [len(found.send()) for _ in range(4)] == [1, 1, 0, 0]
    found._caplog.clear()
    found.plane.loop.fire_timers()
    [record] = found._caplog.records
    assert record.getMessage() == "2 more requests were left out in the last 10 s"


def test_the_level_of_its_logger_silences_the_log(place):
    found = place(**{"request.log.rate": "1"})
    logger = logging.getLogger("kstore.request")
    logger.setLevel(logging.WARNING)
    assert found.send() == []
    logger.setLevel(logging.INFO)
    assert len(found.send()) == 1
