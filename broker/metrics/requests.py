"""How long requests take, by API and part of the time: as a histogram, and with quantiles under the
names that jmx_exporter's rules for Kafka use (kafka_network_requestmetrics_...).

C code counts in buckets of powers of two (kstore/_fast/network/request_times.pyx). Kafka's
quantiles cover the last minutes. These cover the requests since a page that was read one to two
minutes ago.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kstore.broker.state.distribution import quantile_of
from kstore.broker.state.exposition import Family, Metrics, sample
from kstore.errors import error_name
from kstore.protocol.registry import APIS

if TYPE_CHECKING:
    from kstore._fast.network.data_plane import DataPlane

__all__ = ["RequestTimesPart"]

WINDOW_S = 60.0
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
TOTAL = "total"
PARTS = {
    "requestqueuetimems": ("queue", "waiting to be handled"),
    "localtimems": ("local", "being handled by this broker"),
    "diskreadtimems": ("disk", "waiting for this broker's disk"),
    "remotetimems": ("remote", "waiting for followers, other members or records"),
    "responsequeuetimems": ("behind", "waiting for earlier responses of the connection"),
    "responsesendtimems": ("send", "sending the response"),
    "totaltimems": (TOTAL, "all parts together"),
}
"""Kafka's names to kstore's, except for the disk, which Kafka counts as local time."""
SECONDS = Family(
    "kstore_request_seconds", "histogram", "Time from reading a request to sending its response"
)
PART_SECONDS = Family(
    "kstore_request_part_seconds_total", "counter", "The same, added up by part of the request"
)
REQUESTS = Family(
    "kafka_network_requestmetrics_requests_total", "counter", "Requests that were handled"
)

ERRORS = Family(
    "kafka_network_requestmetrics_errors_total", "counter",
    "Errors in responses; a response for three partitions can have three",
)  # fmt: skip
THROTTLE = Family(
    "kafka_network_requestmetrics_throttletimems", "summary",
    "Throttle time in responses, in milliseconds; no quantiles, because most are not throttled",
)  # fmt: skip

Times = Mapping[int, Mapping[str, tuple[int, int, Sequence[int]]]]
"""API key -> part -> (sum in us, count, counts in buckets): `RequestTimes.by_api`."""


class RequestTimesPart:
    """This part of the page. It remembers the counts of an earlier page."""

    def __init__(self) -> None:
        self._last: Times = {}
        self._before: Times = {}
        """Earlier counts, which quantiles do not include."""
        self._last_s = 0.0

    def metrics(self, plane: DataPlane, throttled_ms: Mapping[int, int], now_s: float) -> Metrics:
        """``throttled_ms``: throttle times in responses, by API key. ``now_s``: a monotonic
        clock.
        """
        times: Times = plane.times.by_api()
        if now_s - self._last_s >= WINDOW_S:
            self._before, self._last, self._last_s = self._last, times, now_s
        names = {key: APIS[key].name for key in sorted(times)}
        yield SECONDS
        for key, name in names.items():
            yield from _histogram(name, times[key][TOTAL])
        yield PART_SECONDS
        for key, name in names.items():
            for part, (sum_us, _, _) in times[key].items():
                if part != TOTAL:
                    yield sample(PART_SECONDS.name, sum_us / 1e6, api=name, part=part)
        yield REQUESTS
        for key, count in plane.request_counts().items():
            yield sample(REQUESTS.name, count, request=APIS[key].name)
        yield ERRORS
        for (key, code), count in sorted(plane.table.errors.counts.items()):
            yield sample(ERRORS.name, count, request=APIS[key].name, error=error_name(code))
        yield THROTTLE
        for key, name in names.items():
            yield f'{THROTTLE.name}_sum{{request="{name}"}} {throttled_ms.get(key, 0)}'
            yield f'{THROTTLE.name}_count{{request="{name}"}} {times[key][TOTAL][1]}'
        for kafka_name, (part, words) in PARTS.items():
            family = Family(
                f"kafka_network_requestmetrics_{kafka_name}", "summary",
                f"Time of a request in milliseconds: {words}",
            )  # fmt: skip
            yield family
            for key, name in names.items():
                yield ""
                before = self._before.get(key, {}).get(part)
                yield from _summary(family.name, name, times[key][part], before)


def _histogram(api: str, times: tuple[int, int, Sequence[int]]) -> Metrics:
    sum_us, count, buckets = times
    total = 0
    for number, here in enumerate(buckets[:-1]):
        total += here
        bound = f"{2**number / 1e6:.6f}"
        yield f'{SECONDS.name}_bucket{{api="{api}",le="{bound}"}} {total}'
    yield f'{SECONDS.name}_bucket{{api="{api}",le="+Inf"}} {count}'
    yield f'{SECONDS.name}_sum{{api="{api}"}} {sum_us / 1e6}'
    yield f'{SECONDS.name}_count{{api="{api}"}} {count}'


def _summary(
    name: str,
    api: str,
    times: tuple[int, int, Sequence[int]],
    before: tuple[int, int, Sequence[int]] | None,
) -> Metrics:
    sum_us, count, buckets = times
    lately = list(buckets)
    if before is not None:
        lately = [now - then for now, then in zip(buckets, before[2], strict=True)]
    for quantile in QUANTILES:
        yield sample(name, quantile_ms(lately, quantile), request=api, quantile=f"{quantile:g}")
    yield f'{name}_sum{{request="{api}"}} {sum_us / 1000}'
    yield f'{name}_count{{request="{api}"}} {count}'


def quantile_ms(buckets: Sequence[int], quantile: float) -> float:
    """The time that this fraction of the counted requests did not exceed, in milliseconds; NaN if
    nothing was counted.
    """
    return quantile_of(buckets, quantile) / 1000
