"""Runs the requested rows, one after the other. The pair is started once for the rows that use it.
If a row fails, the others still run, and the results so far are always kept.
"""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Sequence

from bench.compare import ROWS
from bench.compare.pair import Pair
from bench.measure import Settings, progress
from bench.report import Row

__all__ = ["run"]


def run(
    names: Sequence[str], settings: Settings, found: list[Row], facts: dict[str, str]
) -> list[str]:
    """Add the rows to `found` as they arrive, and their conditions to `facts`. Returns the names of
    the rows that failed. A row says itself if an API was missing or one side failed. Raises only
    KeyboardInterrupt, with all brokers stopped.
    """
    failed: list[str] = []
    with Pair(settings.scratch / "pair", settings) as pair:
        for name in [known for known in ROWS if known in names]:
            progress(f"{name}: {ROWS[name].what} ...")
            begin, before = time.monotonic(), len(found)
            try:
                if ROWS[name].needs_pair:
                    pair.start()
                    if len(facts.keys() & {"settings of kstore"}) == 0:
                        facts.update(pair.describe())
                else:
                    pair.close()  # these rows need the whole machine
                module = importlib.import_module(f"bench.compare.{name}")
                for row in module.rows(pair, settings):
                    found.append(row)
                if ROWS[name].needs_pair:
                    pair.loads.append(name)
            except Exception:  # noqa: BLE001 (shown, and told by the exit code)
                progress(traceback.format_exc())
                failed.append(name)
            made = len(found) - before
            progress(f"{name}: {made} rows in {time.monotonic() - begin:.0f} s")
    return failed
