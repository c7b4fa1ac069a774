"""bench/compare/cluster: the bare nodes acknowledge what all three have written, and end with all
that they wrote.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.compare.cluster.bare_nodes import SIZE, BareNodes

VALUE = b"v" * 1000


@pytest.mark.slow
def test_bare_nodes_acknowledge_what_all_three_have_written(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    folder = tmp_path / "bare"
    with BareNodes(folder) as nodes:
        producer = Producer(
            {"bootstrap.servers": nodes.bootstrap, "acks": "all", "enable.idempotence": False}
        )
        failed: list[object] = []
        for number in range(300):
            producer.produce(
                "t",
                VALUE,
                partition=number % SIZE,
                on_delivery=lambda error, _: error and failed.append(error),
            )
        assert producer.flush(60) == 0
        assert failed == []
        for partition in range(SIZE):
            copies = [(folder / f"{node}-{partition}").read_bytes() for node in range(SIZE)]
            assert copies[0].count(VALUE) == 300 // SIZE
            assert copies == copies[:1] * SIZE
    assert not folder.exists()
    assert all(process.returncode is not None for process in nodes.processes)
