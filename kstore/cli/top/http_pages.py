"""What a broker's HTTP listener reports: the broker's id, and its counters in Prometheus's text
format.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

from kstore.cli.top.sample import Hold

__all__ = ["HttpPageError", "Page", "read_page", "values"]

TIMEOUT_S = 5.0
MAX_BYTES = 64 << 20
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
# Our name -> the metric; all its rows are added up.
COUNTERS = {
    "cpu_seconds": "process_cpu_seconds_total",
    "requests": "kstore_requests_total",
    "in_bytes": "kstore_produced_bytes_total",
    "out_bytes": "kstore_sent_bytes_total",
    "connections": "kstore_connections",
}
HOLD_COUNT, HOLD_SUM = "kstore_loop_hold_seconds_count", "kstore_loop_hold_seconds_sum"
HOLD_MAX, HELD_BY = "kstore_loop_hold_max_seconds", "held_by"


class HttpPageError(Exception):
    """An HTTP listener that does not return its metrics; the message says why."""


class Page(NamedTuple):
    """The answer of one listener."""

    node_id: int
    counters: dict[str, float]
    holds: tuple[Hold, ...]


def read_page(url: str, token: str | None) -> Page:
    """Request a broker's kstore.http.listener. Raises HttpPageError."""
    node_id = json.loads(_get(url, "cluster", token))["node_id"]
    rows = list(values(_get(url, "metrics", token).decode()))
    counters = {}
    for ours, metric in COUNTERS.items():
        found = [value for name, _, value in rows if name == metric]
        if found:
            counters[ours] = sum(found)
    return Page(node_id, counters, _holds(rows))


def values(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Each sample's name, labels and value."""
    for line in text.splitlines():
        found = None if line.startswith("#") else _LINE.match(line)
        if found is not None:
            yield found[1], dict(_LABEL.findall(found[2] or "")), float(found[3])


def _holds(rows: list[tuple[str, dict[str, str], float]]) -> tuple[Hold, ...]:
    tables: dict[str, dict[str, float]] = {HOLD_COUNT: {}, HOLD_SUM: {}, HOLD_MAX: {}}
    for name, labels, value in rows:
        if name in tables and HELD_BY in labels:
            tables[name][labels[HELD_BY]] = value
    return tuple(
        Hold(held_by, int(count), tables[HOLD_SUM].get(held_by, 0.0),
             tables[HOLD_MAX].get(held_by, 0.0))
        for held_by, count in tables[HOLD_COUNT].items()
    )  # fmt: skip


def _get(url: str, page: str, token: str | None) -> bytes:
    address = f"{url.rstrip('/')}/{page}"
    if not address.startswith(("http://", "https://")):
        raise HttpPageError(f"{url!r} is not a URL such as http://127.0.0.1:8080")
    request = urllib.request.Request(address)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return bytes(answer.read(MAX_BYTES))
    except urllib.error.HTTPError as problem:
        hint = "; set KSTORE_HTTP_TOKEN" if problem.code == 401 else ""
        raise HttpPageError(f"{address} answers {problem.code} {problem.reason}{hint}") from None
    except OSError as problem:
        raise HttpPageError(f"{address}: {getattr(problem, 'reason', problem)}") from None
