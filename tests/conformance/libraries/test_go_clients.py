"""Go's Kafka clients, unmodified: franz-go with its admin client, its transactions and its share
consumer, sarama, kafka-go. The program in go/ talks to the broker; this file checks what it saw.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.beside.programs import output_of
from tests.conformance.go_programs import build

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PER_CODEC = 20

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(".", tmp_path_factory.mktemp("go"))


def run(program: Path, client: str, peer: Any, topic: str) -> dict[str, Any]:
    """What one client saw."""
    return json.loads(output_of([program, client, peer.bootstrap, topic]))


def values(codec: str) -> list[str]:
    return [f"{codec}-{n}-{n:0100d}" for n in range(PER_CODEC)]


def test_franz_go_produces_consumes_and_administers(program, peer, topic):
    seen = run(program, "franz", peer, topic)
    halves = [[v for codec in CODECS for v in values(codec)[first::2]] for first in range(2)]
    expected = halves[0] + halves[1]
    assert seen.pop("read") == expected
    assert seen.pop("read as a group") == expected
    assert seen == {
        "created again": True,
        "end offsets": [50, 50],
        "offsets after": [0, 0],
        "lag": 0,
        "group state": "Empty",
        "committed": 50,
        "low watermark": 5,
        "start offsets": [5, 0],
        "retention.ms": "3600000",
        "deleted group": True,
        "no such group": True,
        "partitions": 3,
        "deleted topic": True,
    }


def test_franz_go_commits_and_aborts_transactions_and_moves_records_exactly_once(
    program, peer, topic
):
    seen = run(program, "franz-transactions", peer, topic)
    expected = [f"{turn}-{n}" for turn in (1, 3) for n in range(5)]
    assert seen == {"committed": expected, "moved": expected, "state": "CompleteCommit"}


def test_franz_go_acknowledges_records_of_a_share_group_in_every_way(program, peer, topic):
    seen = run(program, "franz-share", peer, topic)
    assert seen == {
        "first": [f"v{n}x1" for n in range(6)],
        "again": ["v1x2", "v4x2"],
        "errors": [],
        "state": "Stable",
        "members": 1,
        "assigned": {"0": {}},
        "lag": 0,
        "deleted group": True,
    }


def test_sarama_produces_consumes_and_administers(program, peer, topic):
    seen = run(program, "sarama", peer, topic)
    expected = [v for codec in sorted(CODECS) for v in values(codec)]
    assert seen.pop("read") == expected
    assert seen.pop("read as a group") == expected
    assert seen == {
        "committed": 100,
        "group state": "Empty",
        "group type": "consumer",
        "retention.ms": "3600000",
        "partitions": 3,
    }


def test_kafka_go_produces_and_consumes(program, peer, topic):
    seen = run(program, "kafka-go", peer, topic)
    expected = [v for codec in CODECS for v in values(codec)]
    assert seen.pop("read") == expected
    assert seen.pop("read as a group") == expected
    assert seen == {"committed": 100, "offsets": [0, 100]}
