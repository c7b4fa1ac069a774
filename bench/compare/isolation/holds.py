"""What held kstore's loop, by the broker's own metrics. Kafka has no such loop."""

from __future__ import annotations

import os
import re
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

from tests.conformance.broker_process import BrokerProcess, free_port
from tests.conformance.kstore_broker import KstoreBroker

__all__ = ["Held", "Holds", "parse"]

LISTENER = "kstore.metrics.listener"
_ROW = re.compile(
    r'^kstore_loop_hold_(?P<kind>seconds_bucket|max_seconds)\{held_by="(?P<name>.*?)"'
    r'(?:,le="(?P<le>[^"]+)")?\} (?P<value>\S+)$'
)


class Held(NamedTuple):
    """The holds of one name since the broker's start."""

    longest_ms: float
    buckets: dict[float, float]
    """Upper limit in ms -> number of holds that were not longer."""

    def since(self, before: Held | None) -> float:
        """The longest hold since then, in ms; 0 for none. If an older hold was longer, this is the
        limit of the bucket that the hold is in, so it can be too large by at most that much.
        """
        if before is None or self.longest_ms > before.longest_ms:
            return self.longest_ms
        limit = 0.0
        new_below = 0.0
        for most in sorted(self.buckets):
            new = self.buckets[most] - before.buckets.get(most, 0.0)
            if new > new_below:
                limit, new_below = most, new
        return min(limit, self.longest_ms)


def parse(page: str) -> dict[str, Held]:
    """By name; empty if the page has no holds."""
    found: dict[str, Held] = {}
    for line in page.splitlines():
        if not (match := _ROW.match(line)):
            continue
        held = found.setdefault(match["name"], Held(0.0, {}))
        value = float(match["value"])
        if match["kind"] == "max_seconds":
            found[match["name"]] = held._replace(longest_ms=value * 1e3)
        else:
            held.buckets[float(match["le"]) * 1e3] = value
    return found


class Stolen:
    """The time that a hypervisor took from this machine's cores since it was made (Linux)."""

    def __init__(self, path: Path = Path("/proc/stat")) -> None:
        self._path = path
        self._began_s, self._before_s = time.monotonic(), self._read_s()

    def _read_s(self) -> float:
        """proc(5): the 8th number of the first line, in ticks of all cores."""
        if not self._path.exists():
            return 0.0
        return int(self._path.read_text().split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK")

    def share(self) -> float:
        """As a share of the cores' time."""
        cores = os.cpu_count() or 1
        elapsed = time.monotonic() - self._began_s
        return (self._read_s() - self._before_s) / elapsed / cores


class Holds:
    """The holds of one broker since `begin`; Kafka has none."""

    def __init__(self, broker: BrokerProcess) -> None:
        """Before the broker starts: turn on its metrics."""
        self._broker = broker
        self._began_s = self._waited_s = 0.0
        self._url = ""
        self._before: dict[str, Held] = {}
        if isinstance(broker, KstoreBroker):
            address = f"http://127.0.0.1:{free_port()}"
            broker.overrides[LISTENER] = address
            self._url = f"{address}/metrics"

    @property
    def are_known(self) -> bool:
        """True if the broker has a loop and reports what held it."""
        return bool(self._url)

    def _read(self) -> dict[str, Held]:
        if not self._url:
            return {}
        with urllib.request.urlopen(self._url, timeout=60) as answer:
            return parse(answer.read().decode())

    def begin(self) -> None:
        """Ignore all holds until now."""
        self._before = self._read()
        self._began_s, self._waited_s = time.monotonic(), self._core_waits_s()

    def core_wait_share(self) -> float:
        """The share of the time since `begin` in which the loop's thread was ready to run, but
        other processes had the cores. It counts in no hold, but delays small records.
        """
        elapsed = time.monotonic() - self._began_s
        return (self._core_waits_s() - self._waited_s) / elapsed

    def _core_waits_s(self) -> float:
        pid = self._broker.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9

    def longest(self) -> list[tuple[float, str]]:
        """Milliseconds and name of the holds since `begin`, the longest first."""
        now = self._read()
        found = [(held.since(self._before.get(name)), name) for name, held in now.items()]
        return sorted((each for each in found if each[0]), reverse=True)
