"""The Spark session and the broker of the pipeline's benchmark, and the CPU time of each."""

from __future__ import annotations

import os
import random
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.brokers import kstore_broker
from bench.measure import FamilyClock, cpu_seconds
from bench.pipeline.parts import Parts
from kstore.clients import AdminClient, Producer
from kstore.clients.admin import NewTopic
from kstore.types import TopicPartition
from tests.conformance.kafka_jars import connector_jars
from tests.conformance.kstore_broker import ROOT

__all__ = ["Bench"]

PARTITIONS = 4
CONF = {
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""All other settings have Spark's defaults. Importing pyspark_kstore makes Spark use
Unix sockets.
"""


class Bench:
    """A context: Spark with as many threads as there are cores, and one broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = kstore_broker(folder / "broker")

    def __enter__(self) -> Self:
        from pyspark.sql import SparkSession

        # Before the session is created, as docs/spark.md says.
        import pyspark_kstore  # noqa: F401

        self.broker.start()
        (self.folder / "conf").mkdir(parents=True, exist_ok=True)
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["SPARK_CONF_DIR"] = str(self.folder / "conf")
        # Otherwise workers would compile all modules again.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        builder = SparkSession.builder.master(f"local[{os.cpu_count()}]").appName("kstore bench")
        own = {
            "spark.jars": ",".join(str(jar) for jar in connector_jars()),
            "spark.local.dir": str(self.folder / "local"),
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }
        for name, value in (CONF | own).items():
            builder = builder.config(name, value)
        try:
            self.spark = builder.getOrCreate()
        except BaseException:
            self.broker.stop()
            raise
        self.spark.sparkContext.setLogLevel("ERROR")
        self._clock = FamilyClock(self.spark.sparkContext._gateway.proc.pid)
        self._parts = Parts(self.spark.sparkContext._gateway.proc.pid)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        gateway = self.spark.sparkContext._gateway
        try:
            self.spark.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()  # the JVM ends with it
            gateway.proc.wait(60)
        finally:
            self.broker.stop()

    @property
    def log_dir(self) -> Path:
        """Where the broker's segments are."""
        return self.broker.log_dir

    def spark_cpu_s(self) -> float:
        """CPU seconds of the JVM and of all Python workers, including those that have ended."""
        return self._clock.seconds()

    def parts_s(self) -> dict[str, float]:
        """Where the CPU seconds went: see Parts."""
        return self._parts.seconds()

    def broker_cpu_s(self) -> float:
        """CPU seconds of the broker."""
        return cpu_seconds(self.broker.pid)

    # ---- topics ----

    def create(self, topic: str, partitions: int = PARTITIONS, **config: str) -> None:
        """Create a topic. In the names of configs, underscores stand for dots."""
        named = {name.replace("_", "."): value for name, value in config.items()}
        with AdminClient(bootstrap_servers=self.broker.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, partitions, configs=named)])

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        with AdminClient(bootstrap_servers=self.broker.bootstrap) as admin:
            admin.delete_topics([topic])

    def fill(self, topic: str, count: int, size: int) -> None:
        """A topic with this many records, with keys, and with values that do not repeat."""
        self.create(topic)
        made = random.Random(size)
        with Producer(bootstrap_servers=self.broker.bootstrap) as producer:
            for number in range(count):
                producer.send(topic, made.randbytes(size), key=b"key-%06d" % (number % 100_000))

    def record_count(self, topic: str) -> int:
        """Records by log end offsets; a topic of the benchmark has no other offsets."""
        from kstore.clients import Consumer

        with Consumer({"bootstrap.servers": self.broker.bootstrap}) as consumer:
            every = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            return sum(consumer.end_offsets(every).values())
