"""The brokers that conformance tests run against: one `kstore serve` and, if requested, one real
Kafka, each started once per session. KSTORE_CONFORMANCE_AGAINST=kafka runs every test of an
unmodified client against Kafka itself, which tests the tests.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.conformance.broker_process import BrokerProcess
from tests.conformance.kafka_broker import KafkaBroker
from tests.conformance.kafka_jars import KafkaUnavailableError, fetch_jars, java_program
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.live_kafka import LIVE_KAFKA

KEEPS_OLD_RECORDS = {"log.retention.check.interval.ms": str(10 * 24 * 3_600_000)}
"""Of brokers that live through a session: many tests write records with times in the past, and a
broker that looks for old segments while such a test runs deletes what the test is about to read.
"""
AGAINST_KAFKA = os.environ.get("KSTORE_CONFORMANCE_AGAINST", "kstore") == "kafka"


KINDS = [pytest.param("kstore", marks=pytest.mark.slow), pytest.param("kafka", marks=LIVE_KAFKA)]
"""Of a fixture: the same tests with both brokers."""


def of_kind(request: pytest.FixtureRequest, folder: Path, *flags: str) -> BrokerProcess:
    """A broker of the kind that the fixture's parameter is, not started."""
    if request.param == "kstore":
        return KstoreBroker(folder)
    request.getfixturevalue("kafka_jars")
    return KafkaBroker(folder, flags=[*flags, "-Xmx512M", "-Xms256M"])


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """Kafka's jars. Without Java or Maven the test is skipped, except in CI, where it fails."""
    try:
        java_program()
        return fetch_jars()
    except KafkaUnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real single-node Kafka for the whole session."""
    folder = tmp_path_factory.mktemp("kafka")
    with KafkaBroker(folder, overrides=KEEPS_OLD_RECORDS) as running:
        yield running


@pytest.fixture(scope="session")
def peer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """The broker under test, shared by the session's tests: use topics of your own."""
    if AGAINST_KAFKA:
        yield request.getfixturevalue("kafka")
        return
    folder = tmp_path_factory.mktemp("kstore")
    with KstoreBroker(folder, overrides=KEEPS_OLD_RECORDS) as running:
        yield running


def under_test(request: pytest.FixtureRequest, folder: Path) -> BrokerProcess:
    """A broker of the kind that is tested, not started, with the SETTINGS of the file."""
    if AGAINST_KAFKA:
        request.getfixturevalue("kafka_jars")
    kind = KafkaBroker if AGAINST_KAFKA else KstoreBroker
    return kind(folder, overrides=_settings(request))


def _settings(request: pytest.FixtureRequest) -> Mapping[str, str] | None:
    """The SETTINGS of the file, if it has any."""
    return getattr(request.module, "SETTINGS", None)


@pytest.fixture(scope="module")
def files_kstore(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KstoreBroker]:
    """A kstore for the tests of one file, whatever is tested, with its SETTINGS."""
    with KstoreBroker(tmp_path_factory.mktemp("kstore"), overrides=_settings(request)) as running:
        yield running


@pytest.fixture(scope="module")
def files_kafka(
    request: pytest.FixtureRequest, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker]:
    """The same of Kafka."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), overrides=_settings(request)) as running:
        yield running


@pytest.fixture
def own_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker under test for one test alone, which may stop and kill it; with the SETTINGS of the
    file, if it has any.
    """
    with under_test(request, tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """The same for the tests of one file."""
    with under_test(request, tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses; the topic does not exist yet."""
    return f"t-{uuid.uuid4().hex[:12]}"
