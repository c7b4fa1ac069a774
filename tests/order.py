"""Which tests run first, and which run on the same of xdist's workers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).resolve().parent.parent


@cache
def uses_spark(file: str) -> bool:
    """Whether tests of this file run on the session's Spark."""
    return "spark: SparkSession" in (ROOT / file).read_text(encoding="utf-8")


class FilesAndOneSpark(LoadFileScheduling):
    """A file's tests run on one worker, and all tests with Spark on the same one: a Spark takes 20
    seconds of CPU until its JVM has loaded and compiled what it needs.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "spark" if uses_spark(file) else file


def long_files_first(items: list[pytest.Item]) -> None:
    """Sort: tests on Spark, then files with slow tests of JVMs, then other slow ones. Workers that
    take file after file are then done at about the same time.
    """
    ranks: dict[Path, int] = {}
    for item in items:
        is_slow, is_java = (item.get_closest_marker(name) for name in ("slow", "java"))
        rank = 1 if is_slow and is_java else 2 if is_slow or is_java else 3
        if item.path not in ranks and uses_spark(item.path.relative_to(ROOT).as_posix()):
            rank = 0
        ranks[item.path] = min(rank, ranks.get(item.path, 3))
    items.sort(key=lambda item: ranks[item.path])
