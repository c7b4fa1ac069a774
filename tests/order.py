"""The order of tests, which of them share one of xdist's workers, and when a worker imports them.

With xdist's `--dist loadfile`, a worker imports and collects a file when it runs it. Otherwise each
worker would collect all files before its first test, although it runs only a part of them: 7
seconds of CPU for each worker. xdist distributes one item for each file, and this item runs the
file's tests. Marks (-m) and names (-k) select tests, so a file may have none. If single tests are
requested (`file::test`, `--lf`), or without workers, pytest collects as usual.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.times import recorded

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

ROOT = Path(__file__).resolve().parent.parent
ON_SPARK = re.compile(r"\b(spark: SparkSession|lake: Lake)\b")
"""In a file whose tests use the session's Spark."""
ASKED = "kstore_whole_files"
"""The key in a worker's input that says so."""
READ_ALL_SOURCES = {"tests/test_tidy.py", "tests/test_rooms.py"}


@cache
def rank(file: Path) -> int:
    """0: tests on the session's Spark, 1: slow tests of JVMs, 2: slow ones or JVMs, 3: others."""
    text = file.read_text(encoding="utf-8")
    is_slow, is_java = (f"mark.{name}" in text for name in ("slow", "java"))
    if ON_SPARK.search(text):
        return 0
    return 1 if is_slow and is_java else 2 if is_slow or is_java else 3


class FilesAndOneSpark(LoadFileScheduling):
    """A file's tests run on one worker, and all tests with Spark on the same one: a Spark takes 20
    seconds of CPU until its JVM has loaded and compiled what it needs. So do those that parse all
    sources.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if file in READ_ALL_SOURCES:
            return "sources"
        return file if rank(ROOT / file) else "spark"


def long_files_first(items: list[pytest.Item]) -> None:
    """Sort: tests on Spark, then files with slow tests of JVMs, then other slow ones; of each kind
    what took longest when times were recorded. Workers that take file after file are then done at
    about the same time.
    """
    took = {ROOT / name: cpu for name, cpu in recorded().items()}
    items.sort(key=lambda item: (rank(item.path), -took.get(item.path, 0.0)))


_cases: Counter[tuple[pytest.Collector | None, str]] = Counter()


def few_cases_are_quick(item: pytest.Item) -> None:
    """Mark all cases of a test with `quick_one_in(n)` as slow, except the first of each n."""
    mark = item.get_closest_marker("quick_one_in")
    if mark is not None:
        test = item.parent, getattr(item, "originalname", item.name)
        if _cases[test] % mark.args[0]:
            item.add_marker(pytest.mark.slow)
        _cases[test] += 1


def read_files_late(config: pytest.Config) -> None:
    """Before the session: the plugin of a worker, or of the process that starts the workers."""
    workerinput = getattr(config, "workerinput", None)
    if workerinput is not None:
        if ASKED in workerinput:
            config.pluginmanager.register(Worker(), "whole-files")
    elif (
        config.getoption("tx", None)
        and config.getoption("dist") == "loadfile"
        and not config.getoption("lf", False)
        and not any("::" in asked for asked in config.args)
    ):
        config.pluginmanager.register(Starter(), "whole-files")


class WholeFile(pytest.Item):
    """The item for a file."""

    def runtest(self) -> None:
        """Not called: `Worker` runs the tests."""
        raise NotImplementedError


class UnreadFile(pytest.File):
    """A test file that is not imported yet."""

    def collect(self) -> Generator[WholeFile, None, None]:
        """Return one item, without importing the file."""
        yield WholeFile.from_parent(self, name="all")


def send_less(config: pytest.Config) -> None:
    """Keep a worker from sending what only verbose output, --durations and JUnit files need: the
    start and the end of a test, and that its setup passed. That costs a millisecond of CPU a test.
    """
    asks_more = config.getoption("verbose") > 0 or any(
        config.getoption(name, None) for name in ("durations", "xmlpath")
    )
    interactor = next(
        (each for each in config.pluginmanager.get_plugins() if hasattr(each, "sendevent")), None
    )
    if interactor is None or asks_more:
        return
    send = interactor.sendevent

    def send_event(name: str, **fields: Any) -> None:
        report = fields.get("data", {}) if name == "testreport" else {}
        is_plain = report.get("outcome") == "passed" and not report.get("sections")
        if name not in {"logstart", "logfinish"} and not (
            is_plain and report.get("when") == "setup"
        ):
            send(name, **fields)

    interactor.sendevent = send_event


class Worker:
    """Collects files without importing them, and a file's tests when it runs the file."""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Now all plugins are there."""
        send_less(session.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(
        self, module_path: Path, parent: pytest.Collector
    ) -> pytest.Collector:
        """Return an unread file instead of a module."""
        return UnreadFile.from_parent(parent, path=module_path)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Keep files from being deselected: their tests are not known yet."""
        files = [item for item in items if isinstance(item, WholeFile)]
        items[:] = [item for item in items if not isinstance(item, WholeFile)]
        yield
        long_files_first(files)
        items += files

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Run the file's tests as if pytest had collected them before."""
        if not isinstance(item, WholeFile):
            return None
        session, hook = item.session, item.config.hook
        folder = item.getparent(UnreadFile).parent  # type: ignore[union-attr]
        tests = list(session.genitems(pytest.Module.from_parent(folder, path=item.path)))
        hook.pytest_collection_modifyitems(session=session, config=item.config, items=tests)
        if not tests:  # else the last one's teardown does it
            session._setupstate.teardown_exact(nextitem)
        place = session.items.index(item)
        for test, following in pairwise([*tests, nextitem]):
            assert test is not None
            session.items[place] = (
                test  # xdist compares what is reported with what it has asked for
            )
            test.ihook.pytest_runtest_protocol(item=test, nextitem=following)
            if session.shouldfail or session.shouldstop:
                break
        session.items[place] = item
        return True


class Starter:
    """Tells workers to collect files. pytest's percentage is an estimate, because the number of
    tests is known only at the end.
    """

    def __init__(self) -> None:
        self._files = 0
        self._begun: set[str] = set()
        self._tests: set[str] = set()
        self._session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep the session, whose number of tests is estimated."""
        self._session = session

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: WorkerController) -> None:
        """Tell a worker, before it starts."""
        node.workerinput[ASKED] = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """All workers have the same files."""
        self._files = len(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Estimate the number of tests from the files that have begun."""
        self._tests.add(report.nodeid)
        self._begun.add(report.nodeid.partition("::")[0])
        assert self._session is not None
        self._session.testscollected = len(self._tests) * self._files // len(self._begun)
