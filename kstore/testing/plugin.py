"""kstore's pytest plugin: a broker or a cluster for the session, a topic for each test, and faults.

pytest loads this in every run, so it imports almost nothing: fixtures import what they need.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kstore.clients import AdminClient, Consumer, Producer
    from kstore.testing.brokers import Broker, Cluster, Server
    from kstore.testing.faults import Faults

_topic_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Broker settings from the ini file and the command line."""
    words = "a broker setting KEY=VALUE for the fixtures kstore_broker and kstore_cluster"
    parser.addini("kstore_settings", f"{words}; one a line", type="linelist", default=[])
    parser.addini("kstore_cluster_size", "the number of brokers of kstore_cluster", default="3")
    group = parser.getgroup("kstore")
    group.addoption(
        "--kstore-setting", action="append", default=[], metavar="KEY=VALUE", help=words
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "kstore_topic(partitions=1, replication_factor=-1, configs=None): "
        "settings of the topic of the fixture kstore_topic",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the brokers' output during a test that failed."""
    report = yield
    starts = item.stash.get(_LOG_STARTS, None)
    if starts is None or not report.failed:
        return report
    for broker, start in starts.items():
        text = broker.output(start)
        if text:
            report.sections.append((f"output of kstore broker {broker.node_id}", text))
    return report


_LOG_STARTS: pytest.StashKey[dict[Broker, int]] = pytest.StashKey()


@pytest.fixture(scope="session")
def kstore_settings() -> dict[str, Any]:
    """The settings of the brokers. Override this fixture to set your own. Settings in the ini file
    and on the command line take precedence.
    """
    return {}


@pytest.fixture(scope="session")
def kstore_broker(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kstore_settings: dict[str, Any],
) -> Iterator[Broker]:
    """A broker for the session. ``kstore_broker.bootstrap_servers`` is its address."""
    from kstore.testing.brokers import Broker

    settings = _settings(request.config, kstore_settings)
    with Broker(tmp_path_factory.mktemp("kstore-broker"), settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def kstore_cluster(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kstore_settings: dict[str, Any],
) -> Iterator[Cluster]:
    """Brokers for the session: three, or as many as the ini option kstore_cluster_size says.
    ``kstore_cluster[2].stop()`` kills one, and ``kstore_cluster.start()`` starts it again.
    """
    from kstore.testing.brokers import Cluster

    settings = _settings(request.config, kstore_settings)
    size = int(request.config.getini("kstore_cluster_size"))
    with Cluster(tmp_path_factory.mktemp("kstore-cluster"), size, settings) as cluster:
        yield cluster


@pytest.fixture
def kstore_server(request: pytest.FixtureRequest) -> Server:
    """The cluster in a test that uses it, otherwise the broker."""
    name = "kstore_cluster" if "kstore_cluster" in request.fixturenames else "kstore_broker"
    server: Server = request.getfixturevalue(name).start()
    request.node.stash[_LOG_STARTS] = {each: each.log_size() for each in server.members}
    return server


@pytest.fixture
def kstore_bootstrap_servers(kstore_server: Server) -> str:
    """The value for a client's bootstrap.servers."""
    return kstore_server.bootstrap_servers


@pytest.fixture
def kstore_make_topic(
    kstore_server: Server, kstore_admin: AdminClient
) -> Iterator[Callable[..., str]]:
    """A function that creates a topic and returns its name: ``kstore_make_topic(partitions=3)``.
    The topics are deleted after the test.
    """
    from kstore.clients import NewTopic
    from kstore.errors import KafkaError
    from kstore.testing.faults import Faults

    made: list[str] = []

    def make(
        partitions: int = 1,
        replication_factor: int = -1,
        configs: dict[str, str] | None = None,
        prefix: str = "test",
    ) -> str:
        name = f"{prefix}-{next(_topic_numbers)}"
        topic = NewTopic(name, partitions, replication_factor, configs or {})
        kstore_admin.create_topics([topic])
        made.append(name)
        return name

    yield make
    Faults(lambda: kstore_server.http_urls).clear()
    for name in made:
        with suppress(KafkaError, OSError):  # the test has deleted it, or no broker is running
            kstore_admin.delete_topics([name])


@pytest.fixture
def kstore_topic(request: pytest.FixtureRequest, kstore_make_topic: Callable[..., str]) -> str:
    """The name of a topic that only this test has. The marker kstore_topic sets its partitions and
    configs.
    """
    marker = request.node.get_closest_marker("kstore_topic")
    return kstore_make_topic(*(marker.args if marker else ()), **(marker.kwargs if marker else {}))


@pytest.fixture
def kstore_faults(kstore_server: Server) -> Iterator[Faults]:
    """Injects faults: ``with kstore_faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", count=2):``.
    All faults are removed after the test.
    """
    from kstore.testing.faults import Faults

    faults = Faults(lambda: kstore_server.http_urls)
    yield faults
    faults.clear()


@pytest.fixture
def kstore_admin(kstore_server: Server) -> Iterator[AdminClient]:
    """An AdminClient of kstore.clients."""
    from kstore.clients import AdminClient

    with AdminClient(bootstrap_servers=kstore_server.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def kstore_producer(kstore_server: Server) -> Iterator[Producer]:
    """A Producer of kstore.clients."""
    from kstore.clients import Producer

    with Producer(bootstrap_servers=kstore_server.bootstrap_servers) as producer:
        yield producer


@pytest.fixture
def kstore_consumer(kstore_server: Server, kstore_topic: str) -> Iterator[Consumer]:
    """A Consumer of kstore.clients that reads kstore_topic from the beginning, alone in its
    group.
    """
    from kstore.clients import Consumer

    settings = {
        "bootstrap.servers": kstore_server.bootstrap_servers,
        "group.id": f"group-of-{kstore_topic}",
        "auto.offset.reset": "earliest",
    }
    with Consumer(settings) as consumer:
        consumer.subscribe([kstore_topic])
        yield consumer


def _settings(config: pytest.Config, given: dict[str, Any]) -> dict[str, Any]:
    """All settings that were given. Raises pytest.UsageError for one that is not KEY=VALUE."""
    found = dict(given)
    for item in (*config.getini("kstore_settings"), *config.getoption("--kstore-setting")):
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise pytest.UsageError(f"a kstore setting is KEY=VALUE, not {item!r}")
        found[key.strip()] = value.strip()
    return found
