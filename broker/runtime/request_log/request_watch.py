"""Selects requests for the request log and for traces, according to the current settings. If all
are off, this costs one comparison per request.

kstore/_fast/network/request_times.pyx measures the times. request_lines.py writes lines,
request_spans.py writes traces; both are loaded on first use.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore._fast.network.connection import Connection
    from kstore._fast.network.data_plane import DataPlane
    from kstore._fast.network.request_times import TimedRequest
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.request_log.request_lines import RequestLines
    from kstore.broker.runtime.request_log.request_spans import RequestSpans

__all__ = ["LOG", "TRACE", "RequestWatch"]

LOG, TRACE = 0, 1
"""The sampling slots of RequestTimes: for the log, and for traces."""
LOG_RATE = "kstore.request.log.rate"
LOG_APIS = "kstore.request.log.apis"
LOG_CLIENTS = "kstore.request.log.clients"
SLOW_MS = "kstore.slow.request.ms"
TRACE_RATE = "kstore.trace.rate"
TRACE_ENDPOINT = "kstore.trace.endpoint"
SETTINGS = frozenset({LOG_RATE, LOG_APIS, LOG_CLIENTS, SLOW_MS, TRACE_RATE})
# Created at the start, so that kafka-configs can set their levels.
LOGGERS = (logging.getLogger("kstore.request"), logging.getLogger("kstore.request.slow"))


class RequestWatch:
    """Makes the data plane report the requests that the settings select."""

    def __init__(self, node: Node, plane: DataPlane) -> None:
        self._node = node
        self._times = plane.times
        self._lines: RequestLines | None = None
        self._spans: RequestSpans | None = None
        self._loading: asyncio.Task[None] | None = None
        node.config.watch(self._changed)
        self._apply()

    async def loaded(self) -> None:
        """Wait until requests are traced, if tracing is on."""
        if self._loading is not None:
            await self._loading

    async def close(self) -> None:
        """Stop reporting requests, and send the remaining spans."""
        self._times.tell = None
        await self.loaded()
        if self._spans is not None:
            await self._node.loop.run_in_executor(None, self._spans.close)
            self._spans = None

    def _changed(self, names: frozenset[str]) -> None:
        if names & SETTINGS:
            self._apply()

    def _apply(self) -> None:
        config, times = self._node.config, self._times
        rate, trace_rate = config[LOG_RATE], config[TRACE_RATE]
        times.set_chance(LOG, rate)
        times.set_chance(TRACE, trace_rate)
        times.slow_us = 1000 * max(0, config[SLOW_MS])
        if rate or times.slow_us:
            self._loaded_lines().choose(config[LOG_APIS], config[LOG_CLIENTS])
        if trace_rate and self._spans is None and self._loading is None:
            self._loading = self._node.loop.create_task(self._load_spans())
        times.tell = self._report if rate or trace_rate or times.slow_us else None

    def _loaded_lines(self) -> RequestLines:
        if self._lines is None:
            from kstore.broker.runtime.request_log.request_lines import RequestLines

            self._lines = RequestLines(self._node)
        return self._lines

    async def _load_spans(self) -> None:
        """Load OpenTelemetry's SDK, which takes long, in a thread."""
        try:
            self._spans = await self._node.loop.run_in_executor(None, self._make_spans)
        except ImportError as error:
            self._node.report(
                f"{TRACE_RATE} is set, but requests are not traced: {error}. Install the extra:"
                " pip install 'kstore[otel]'"
            )

    def _make_spans(self) -> RequestSpans:
        from kstore.broker.runtime.request_log.request_spans import RequestSpans

        return RequestSpans.exporting(self._node.node_id, self._node.config[TRACE_ENDPOINT])

    def _report(self, connection: Connection, timed: TimedRequest) -> None:
        """Called when a randomly chosen or slow request is complete."""
        if timed.chosen & 1 << TRACE and self._spans is not None:
            self._spans.report(connection, timed)
        if timed.slow or timed.chosen & 1 << LOG:
            self._loaded_lines().report(connection, timed)
