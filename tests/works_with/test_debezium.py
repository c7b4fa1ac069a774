"""Debezium's embedded engine: changes of a database become records, and the engine stores its
offsets and the history of the schema in topics. It is killed with -9 and continues from these.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kstore.clients import AdminClient, Consumer
from tests.beside.waiting import until
from tests.conformance.kafka_jars import fetch, java_program
from tests.conformance.kstore_broker import KstoreBroker
from tests.works_with.environments import CACHE
from tests.works_with.mariadb import MariaDb

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

VERSION = "3.6.1.Final"
HERE = Path(__file__).parent
ROWS = 50


@contextmanager
def engine(bootstrap: str, database: MariaDb, folder: Path) -> Iterator[None]:
    """The engine while the block runs; then kill -9."""
    name = f"debezium-embedded-{VERSION}"
    jars = fetch(HERE / "debezium.xml", CACHE / f"debezium-{VERSION}", name)
    settings = {
        "name": "shop", "bootstrap.servers": bootstrap, "topic.prefix": "shop",
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.hostname": "127.0.0.1", "database.port": str(database.port),
        "database.user": "capture", "database.password": "", "database.server.id": "5401",
        "database.include.list": "shop", "database.ssl.mode": "disabled",
        "offset.storage": "org.apache.kafka.connect.storage.KafkaOffsetBackingStore",
        "offset.storage.topic": "shop-offsets", "offset.storage.partitions": "1",
        "offset.storage.replication.factor": "1", "offset.flush.interval.ms": "200",
        "schema.history.internal": "io.debezium.storage.kafka.history.KafkaSchemaHistory",
        "schema.history.internal.kafka.bootstrap.servers": bootstrap,
        "schema.history.internal.kafka.topic": "shop-history",
        "converter.schemas.enable": "false",
    }  # fmt: skip
    file = folder / "engine.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    with open(folder / "engine.log", "ab") as log:
        process = subprocess.Popen(
            [java_program(), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*",
             str(HERE / "java" / "DebeziumApp.java"), str(file)],
            cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield
        assert process.poll() is None, (folder / "engine.log").read_text()[-6000:]
    except AssertionError as error:
        raise AssertionError((folder / "engine.log").read_text()[-6000:]) from error
    finally:
        process.kill()
        process.wait()


class Changes:
    """The changes of the table: `rows` is the table that follows from them."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}, "shop.shop.orders"
        )
        self.rows: dict[int, Any] = {}
        self.read_by_snapshot = 0

    def poll(self) -> None:
        for record in self._consumer.poll(1000):
            number = json.loads(record.key or b"")["id"]
            if record.value is None:  # the tombstone after a deletion
                assert number not in self.rows
                continue
            change = json.loads(record.value)
            self.read_by_snapshot += change["op"] == "r"
            if change["op"] == "d":
                self.rows.pop(number, None)
            else:
                self.rows[number] = change["after"]

    def wait(self, rows: dict[int, Any]) -> None:
        """Until the changes give these rows."""
        until(lambda: self.poll() or self.rows == rows, f"{len(rows)} rows", 180)

    def close(self) -> None:
        self._consumer.close()


def test_changes_go_on_after_kill_9(tmp_path: Path) -> None:
    with MariaDb(tmp_path / "mariadb") as database, KstoreBroker(tmp_path / "broker") as broker:
        database.run("CREATE DATABASE shop; CREATE TABLE shop.orders (id INT PRIMARY KEY, n INT)")
        values = ",".join(f"({number},0)" for number in range(ROWS))
        database.run(f"INSERT INTO shop.orders VALUES {values}")
        rows: dict[int, Any] = {number: {"id": number, "n": 0} for number in range(ROWS)}
        with AdminClient(broker.bootstrap) as admin:
            admin.create_topics(["shop.shop.orders"])
        changes = Changes(broker.bootstrap)
        with engine(broker.bootstrap, database, tmp_path):
            changes.wait(rows)
            database.run("UPDATE shop.orders SET n = 1 WHERE id < 10")
            rows |= {number: {"id": number, "n": 1} for number in range(10)}
            changes.wait(rows)
            until(lambda: records(broker, "shop-offsets"), "offsets are kept", 60)
        database.run(
            "DELETE FROM shop.orders WHERE id < 5;"
            "ALTER TABLE shop.orders ADD COLUMN note VARCHAR(20);"
            "INSERT INTO shop.orders VALUES (100, 2, 'new')"
        )
        for number in range(5):
            del rows[number]
        rows[100] = {"id": 100, "n": 2, "note": "new"}
        with engine(broker.bootstrap, database, tmp_path):
            changes.wait(rows)
        changes.close()
        assert changes.read_by_snapshot == ROWS, "it went on from its offsets, without a snapshot"
        history = records(broker, "shop-history")
        assert any(b"ADD COLUMN note" in value for value in history)
        with AdminClient(broker.bootstrap) as admin:
            configs = admin.describe_configs("shop-offsets")
    assert configs["cleanup.policy"].value == "compact"


def records(broker: KstoreBroker, topic: str) -> list[bytes]:
    with Consumer(
        {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest",
         "consumer.timeout.ms": 2000}, topic,
    ) as reader:  # fmt: skip
        return [record.value or b"" for record in reader]
