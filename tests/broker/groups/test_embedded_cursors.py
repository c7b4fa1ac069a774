"""Cursors of an embedded log are consumer groups of a broker that serves its folder, and back."""

from __future__ import annotations

from pathlib import Path

import kstore
from kstore.clients import Consumer
from tests.conformance.kstore_broker import KstoreBroker


def consume(bootstrap: str, count: int) -> list[bytes | None]:
    """The next values of the group, committed."""
    settings = {"group.id": "worker", "auto.offset.reset": "earliest"}
    found: list[bytes | None] = []
    with Consumer("orders", bootstrap_servers=bootstrap, **settings) as consumer:
        while len(found) < count:
            found += [each.value for each in consumer.poll(timeout_ms=20_000, max_records=count)]
        consumer.commit()
    return found


def test_a_cursor_is_the_group_of_its_name(tmp_path: Path) -> None:
    broker = KstoreBroker(tmp_path / "broker")
    with kstore.open_log(broker.log_dir, topic="orders") as log:
        log.append_many([b"%d" % number for number in range(9)])
        log.cursor("worker").commit(2)
    with broker:
        assert consume(broker.bootstrap, 3) == [b"2", b"3", b"4"]
    with kstore.open_log(broker.log_dir, topic="orders") as log, log.cursor("worker") as cursor:
        assert [record.value for record in cursor.poll(2)] == [b"5", b"6"]
        cursor.commit()
    with broker:
        assert consume(broker.bootstrap, 2) == [b"7", b"8"]
