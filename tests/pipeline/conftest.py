"""What all tests of the pipeline share: one Spark session, one broker, and a topic
for each test.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kstore.clients import AdminClient, NewTopic
from kstore.pipeline.this_python import this_python
from kstore.testing.brokers import Broker
from tests.beside.class_data import FOLDER, ClassData
from tests.conformance.kafka_jars import (
    KafkaUnavailableError,
    connector_jars,
    iceberg_jars,
    java_program,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
KEEP = {"retention.ms": "-1"}
"""Configs of topics whose records are old."""
ROOM = ("-Xms1g", "-Xmn400m", "-XX:MetaspaceSize=300m", "-XX:ReservedCodeCacheSize=240m")
"""Flags of Spark's JVM: it collects garbage less often, and discards no compiled code."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark with two threads in its own JVM that ignores the user's configuration."""
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = this_python()
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_CONF_DIR"] = str(_no_settings())
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    classes = ClassData("spark", *_its_classes())
    monkeypatch = pytest.MonkeyPatch()
    flags = [os.environ["SPARK_SUBMIT_OPTS"], *ROOM, *classes.flags()]
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", " ".join(flags))
    session = (
        SparkSession.builder.master("local[2]")
        .appName("kstore tests")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # For a few hundred rows, compiling a query takes longer than interpreting it.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.jars", ",".join(str(jar) for jar in _jars()))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .getOrCreate()
    )
    monkeypatch.undo()  # of this JVM alone
    session.sparkContext.setLogLevel("ERROR")
    yield session
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with it
    gateway.proc.wait(120)
    classes.keep()


def _no_settings() -> Path:
    """An empty folder, which is in Spark's class path: shared classes need the same one each
    time.
    """
    folder = FOLDER / "no-settings"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _its_classes() -> Iterator[Path]:
    """The files that Spark's JVM has its classes from, or that change with them."""
    import pyspark

    yield Path(pyspark.__file__)
    with suppress(KafkaUnavailableError):
        yield Path(java_program()).resolve()


def _jars() -> list[Path]:
    """Spark's own Kafka connector and Iceberg's library, if Maven can fetch them. Otherwise their
    tests are skipped.
    """
    try:
        return connector_jars() + iceberg_jars()
    except KafkaUnavailableError:
        if os.environ.get("CI"):
            raise
        return []


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A kstore broker for all tests of this folder."""
    with Broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture
def admin(broker: Broker) -> Iterator[AdminClient]:
    with AdminClient(bootstrap_servers=broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def make_topic(admin: AdminClient) -> Callable[..., str]:
    """Creates topics with unique names."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        admin.create_topics([NewTopic(name, partitions, -1, configs)])
        return name

    return make


@pytest.fixture(scope="session")
def connector(spark: SparkSession) -> None:
    """Spark's own Kafka connector. Without Maven, which fetches it, the test is skipped."""
    if not spark.conf.get("spark.jars"):
        pytest.skip("Maven is not there to fetch Spark's Kafka connector")


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Broker]:
    """A broker with an authorizer. User spark, on its second listener, has no rights yet."""
    from tests.broker.runtime.security.sasl_harness import plain_users

    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_users("spark"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Broker(tmp_path / "secured", settings) as started:
        yield started
