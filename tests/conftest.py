"""Settings of all tests. Property tests have no deadline, because a busy machine is not a failure,
and try fewer examples in the quick tests. Every broker checks the invariants of groups after each
step. Ctrl-C works, for tests that send it. A test fails if its brokers held their loops for a
second. A test that failed with real processes runs again, at most twice. And the fixtures that
several folders use.
"""

from __future__ import annotations

import gc
import math
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.beside import forked_brokers
from tests.order import FilesAndOneSpark, few_cases_are_quick, long_files_first, read_files_late
from tests.times import QUICK_S, TestTimes

if TYPE_CHECKING:
    from tests.broker.runtime.security.sasl_harness import Signer
    from tests.broker.runtime.security.tls_harness import Authority
    from tests.conformance.kstore_broker import KstoreBroker
    from tests.conformance.kstore_cluster import KstoreCluster
    from tests.conformance.zookeeper_server import ZooKeeperServer

TESTS = Path(__file__).parent
REAL_PROCESSES = (
    "broker", "cli", "clients", "conformance", "console", "documents", "faults", "packaging",
    "pipeline", "soak", "testing", "upgrade",
)  # fmt: skip
PURE = ("broker/state",)
FORKS_BROKERS = pytest.StashKey[bool]()
"""Whether the session's brokers are forked."""
TRIES_FEWER: set[Any] = set()
"""Properties and state machines whose examples are fewer than they say."""

settings.register_profile("kstore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("kstore"), max_examples=12)
settings.load_profile("kstore")

os.environ["KSTORE_CHECK_INVARIANTS"] = "true"  # also for brokers in other processes
HOLDS = tempfile.NamedTemporaryFile(prefix="kstore-holds-", mode="r", encoding="utf-8")  # noqa: SIM115
os.environ["KSTORE_LONG_HOLDS_FILE"] = HOLDS.name
for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    # A JVM that lives only seconds spends most of them in its optimizing compiler.
    os.environ.setdefault(variable, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # programs in the background inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """pytest's folder, which may be in memory (.ci/folder); with `on_disk` a folder on a disk."""
    if request.node.get_closest_marker("on_disk") is None:
        yield tmp_path
    else:
        (TESTS.parent / "build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="test-", dir=TESTS.parent / "build") as folder:
            yield Path(folder)


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KstoreBroker]:
    """A `kstore serve` for the tests of one file, with the SETTINGS that the file has, if any."""
    from tests.conformance.kstore_broker import KstoreBroker

    settings = getattr(request.module, "SETTINGS", None)
    with KstoreBroker(tmp_path_factory.mktemp("broker"), overrides=settings) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KstoreCluster]:
    """The same with brokers 1 to 3, which know their controller. A test that stops a broker starts
    it again.
    """
    from tests.conformance.kstore_cluster import KstoreCluster

    settings = getattr(request.module, "SETTINGS", None)
    with KstoreCluster(tmp_path_factory.mktemp("cluster"), overrides=settings) as running:
        running.wait_for_controller()
        yield running


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs the certificates of a file's brokers and clients."""
    from tests.broker.runtime.security.tls_harness import Authority

    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    """Issues the tokens that a file's brokers trust."""
    from tests.broker.runtime.security.sasl_harness import Signer

    return Signer(tmp_path_factory.mktemp("signer"))


@pytest.fixture(scope="session")
def zookeeper_jars() -> None:
    """Skips the test if ZooKeeper's jars are missing because there is no Java or Maven; in CI it
    fails.
    """
    from tests.conformance.kafka_jars import KafkaUnavailableError
    from tests.conformance.zookeeper_server import zookeeper_classpath

    try:
        zookeeper_classpath()
    except KafkaUnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture
def zookeeper_server(zookeeper_jars: None, tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A real ZooKeeper for one test."""
    from tests.conformance.zookeeper_server import ZooKeeperServer

    with ZooKeeperServer(tmp_path / "zookeeper") as running:
        yield running


def pytest_configure(config: pytest.Config) -> None:
    """Without the slow tests (`make check`), properties try fewer examples. There, and in
    `make test`, brokers are forked.
    """
    is_quick = "not slow" in config.option.markexpr
    if is_quick:
        settings.load_profile("quick")
    is_left_out = "not thorough" in config.option.markexpr
    config.stash[FORKS_BROKERS] = is_left_out and hasattr(os, "pidfd_open")
    if "TEST_TIMES" in os.environ:
        times = TestTimes(Path(os.environ["TEST_TIMES"]), QUICK_S if is_quick else math.inf)
        config.pluginmanager.register(times, "test-times")
    read_files_late(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesAndOneSpark | None:
    """The scheduler of `make test`."""
    return FilesAndOneSpark(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Brokers that this test starts are forked, or not. A test that runs again gets new fixtures of
    its module, because the first try has left its topics and groups in the broker that it shares
    with other tests.
    """
    has_own_python = item.get_closest_marker("own_python") is not None
    forked_brokers.IS_WANTED = item.config.stash[FORKS_BROKERS] and not has_own_python
    if getattr(item, "execution_count", 1) == 1 or not isinstance(item, pytest.Function):
        return
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        for definition in definitions:
            if definition.scope == "module":
                definition.finish(item._request)  # type: ignore[arg-type]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """No broker that runs during a test holds its loop for a second. Time that it waits for a core,
    or is stopped by a signal, does not count. A fixture of each test would cost more CPU time.
    """
    try:
        yield
    finally:
        held = HOLDS.read()
    if held and item.get_closest_marker("long_holds") is None:
        pytest.fail(f"a broker's loop was held for a second or more:\n{held}", pytrace=False)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Before -m selects tests."""
    few_cases_are_quick(item)


def try_fewer_examples(items: list[pytest.Item]) -> None:
    """Reduce the examples of properties that set their own number, despite the profile."""
    functions = [item for item in items if isinstance(item, pytest.Function)]
    owners: dict[Any, str] = {}
    for item in functions:
        owners[item.cls] = "settings"  # of a state machine
        owners[item.function] = "_hypothesis_internal_use_settings"
    for owner, name in owners.items():
        wanted = getattr(owner, name, None)
        if isinstance(wanted, settings) and owner not in TRIES_FEWER:
            few = max(wanted.max_examples // 8, min(wanted.max_examples, 5))
            setattr(owner, name, settings(wanted, max_examples=few))
            TRIES_FEWER.add(owner)  # several files may share it


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of real processes (JVMs, killed brokers) share few cores. If one of them fails, it runs
    again, at most twice, and pytest's summary lists it among the reruns: it must be fixed. Pure and
    seeded tests do not run again.
    """
    if "not slow" in config.option.markexpr:
        try_fewer_examples(items)
    long_files_first(items)
    gc.freeze()  # items and modules stay until the end: the collector need not visit them again
    if not config.pluginmanager.hasplugin("rerunfailures"):
        return
    for item in items:
        place = item.path.relative_to(TESTS)
        if place.parts[0] in REAL_PROCESSES and not place.as_posix().startswith(PURE):
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=2))
