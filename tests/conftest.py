"""Settings of all tests: property tests have no deadline, for a busy machine is not a failure, and
fewer examples in the quick tests; every broker checks after each step what must hold of groups;
Ctrl-C works, for tests that send it; a test whose brokers held their loops for a second fails; and
a test that failed beside real processes is run again,
twice at most. And the fixtures of more than one folder.
"""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.broker.runtime.security.sasl_harness import Signer
    from tests.broker.runtime.security.tls_harness import Authority

TESTS = Path(__file__).parent
REAL_PROCESSES = (
    "broker", "cli", "clients", "conformance", "documents", "faults", "packaging", "pipeline",
    "soak", "testing",
)  # fmt: skip
PURE = ("broker/state",)

settings.register_profile("kstore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("kstore"), max_examples=25)
settings.load_profile("kstore")

os.environ["KSTORE_CHECK_INVARIANTS"] = "true"  # for brokers in processes of their own, too
HOLDS = tempfile.NamedTemporaryFile(prefix="kstore-holds-", mode="r", encoding="utf-8")  # noqa: SIM115
os.environ["KSTORE_LONG_HOLDS_FILE"] = HOLDS.name
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as whoever runs in the background inherits
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_long_holds(request: pytest.FixtureRequest) -> Iterator[None]:
    """No broker that runs beside a test holds its loop for a second; time that it waits for a core,
    or is stopped by a signal, is no hold.
    """
    yield
    held = HOLDS.read()
    if held and request.node.get_closest_marker("long_holds") is None:
        pytest.fail(f"a broker's loop was held for a second or more:\n{held}", pytrace=False)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signs the certificates of a file's brokers and clients."""
    from tests.broker.runtime.security.tls_harness import Authority

    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    """Who issues the tokens that a file's brokers trust."""
    from tests.broker.runtime.security.sasl_harness import Signer

    return Signer(tmp_path_factory.mktemp("signer"))


def pytest_configure(config: pytest.Config) -> None:
    """Who leaves out the slow tests (`make check`) has properties tried on fewer examples, too."""
    if "not slow" in config.option.markexpr:
        settings.load_profile("quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of real processes (JVMs, brokers that are killed) share few cores with each other. One
    that fails is run again, twice at most, and told among the reruns of pytest's summary: it is to
    be mended. What is pure, or seeded, has no second chance.
    """
    if "not slow" in config.option.markexpr:
        for cls in {item.cls for item in items if isinstance(item, pytest.Function)}:
            wanted = getattr(cls, "settings", None)  # of a state machine, which has its own
            if isinstance(wanted, settings):
                cls.settings = settings(wanted, max_examples=max(wanted.max_examples // 4, 5))
    _long_files_first(items)
    gc.freeze()  # thousands of items stay to the end: the collector need not walk them again
    if not config.pluginmanager.hasplugin("rerunfailures"):
        return
    for item in items:
        place = item.path.relative_to(TESTS)
        if place.parts[0] in REAL_PROCESSES and not place.as_posix().startswith(PURE):
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=2))


def _long_files_first(items: list[pytest.Item]) -> None:
    """Files with slow tests of JVMs, then other slow ones: workers that take file after file (the
    Makefile's --dist loadfile --no-loadscope-reorder) are then done at about the same time.
    """
    ranks: dict[Path, int] = {}
    for item in items:
        is_slow, is_java = (item.get_closest_marker(name) for name in ("slow", "java"))
        rank = 0 if is_slow and is_java else 1 if is_slow or is_java else 2
        ranks[item.path] = min(rank, ranks.get(item.path, 2))
    items.sort(key=lambda item: ranks[item.path])
