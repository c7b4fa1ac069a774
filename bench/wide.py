"""Requests of 1 MB: how long each holds the event loop (CPU time between two turns), how long small
requests on another connection wait in the meantime, and the memory for many of them.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import brokers, frames
from bench.measure import Settings, memory_mb, percentile, progress
from bench.report import Goal, Row
from kstore.broker.api import API_TABLE
from kstore.broker.runtime.garbage import Garbage
from kstore.protocol.registry import APIS, encode_request
from tests.broker.api.requests.large_request import FIXED, array_paths, elements, wide_request
from tests.broker.api.requests.large_request import Path as Fields
from tests.broker.api.requests.world import AUTHORIZER, World, feed
from tests.conformance.kstore_broker import KstoreBroker

__all__ = ["rows"]

SIZE = 1 << 20
MOST_ELEMENTS = 99_000
"""kstore.request.max.elements allows a few more."""
ACLS = (30, 31)
FAST_KEYS = (0, 1)
TOPIC = "bench"
# The APIs with the longest holds or the largest answers.
WORST = (3, 9, 10, 15, 19, 24, 30, 32, 34, 43, 45, 51, 75)


def frame_of(key: int, path: Fields, size: int = SIZE) -> bytes:
    """A request with as many rows as fit and as the broker accepts."""
    version = API_TABLE[key].max_version
    request = wide_request(key, version, path, size, **FIXED)
    count = elements(request)
    if count > MOST_ELEMENTS:
        request = wide_request(key, version, path, size * MOST_ELEMENTS // count, **FIXED)
    return encode_request(request, version, 1, "bench")


class Meter:
    """The CPU time of the longest turn of the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last = time.thread_time()
        self.longest_s = 0.0
        self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.longest_s = max(self.longest_s, time.thread_time() - self._last)
        self._last = time.thread_time()
        self._next = self._loop.call_soon(self._turn)

    def stop(self) -> None:
        self._next.cancel()


async def _longest_ms(folder: Path, key: int, path: Fields) -> tuple[float, int, int]:
    world = World(folder, **(AUTHORIZER if key in ACLS else {}))
    try:
        for frame in (frame_of(key, path, 4096), frame_of(key, path)):  # the first imports
            connection, transport = world.connect()
            gc.collect()
            garbage = Garbage(asyncio.get_running_loop(), lambda: 0)  # like a broker
            garbage.start()
            meter = Meter()
            feed(connection, frame)
            while not transport.written and not transport.closed:
                await asyncio.sleep(0)
            meter.stop()
            garbage.stop()
        return meter.longest_s * 1000, len(frame), len(transport.written)
    finally:
        await world.close()


def _holds(settings: Settings) -> list[Row]:
    found = []
    for key in WORST if settings.quick else [key for key in API_TABLE if key not in FAST_KEYS]:
        if API_TABLE[key].internal:
            continue
        for path in array_paths(key, API_TABLE[key].max_version):
            name = f"{APIS[key].name} {'.'.join(path)}"
            folder = settings.scratch / name.replace(" ", "-")
            longest, size, answer = asyncio.run(_longest_ms(folder, key, path))
            note = f"a frame of {size:,} bytes, answered with {answer:,}"
            goal = Goal(20, at_least=False, of="value")
            found.append(Row("wide", f"{name}: held", longest, "ms", goal=goal, note=note))
    return found


# ---- a broker in a process of its own ----


def _receive(stream: socket.socket) -> bytes:
    head = stream.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        raise ConnectionError("the broker has closed the connection")
    left = struct.unpack(">i", head)[0]
    data = bytearray(left)
    view = memoryview(data)
    while left:
        left -= stream.recv_into(view[len(data) - left :], left)
    return bytes(data)


def _connect(broker: KstoreBroker) -> socket.socket:
    host, _, port = broker.bootstrap.rpartition(":")
    stream = socket.create_connection((host, int(port)), timeout=600)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


@contextmanager
def _senders(broker: KstoreBroker, count: int, sent: list[int]) -> Any:
    """Connections that each send one wide request after the other."""
    stop = threading.Event()
    paths = {key: array_paths(key, API_TABLE[key].max_version)[0] for key in WORST}
    ready = [frame_of(key, paths[key]) for key in WORST if key not in ACLS]
    with _connect(broker) as stream:
        for key in paths.keys() - set(ACLS):  # the first request of each API imports its handler
            stream.sendall(frame_of(key, paths[key], 512))
            _receive(stream)

    def send(first: int) -> None:
        with _connect(broker) as stream:
            place = first
            while not stop.is_set():
                stream.sendall(ready[place % len(ready)])
                _receive(stream)
                sent.append(1)
                place += 1

    threads = [threading.Thread(target=send, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _waits(broker: KstoreBroker, seconds: float) -> list[float]:
    """The milliseconds that small requests wait; at most one is sent per millisecond."""
    batch = frames.record_batch([b"v" * 100])
    requested = [frames.api_versions(), frames.produce(TOPIC, 0, batch)]
    waits = []
    with _connect(broker) as stream:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.perf_counter()
            stream.sendall(requested[len(waits) % 2])
            _receive(stream)
            waits.append((time.perf_counter() - begin) * 1000)
            time.sleep(0.001)
    return waits


def _row(case: str, waits: list[float], note: str) -> Row:
    words = f"median {percentile(waits, 0.5):.2f}, 99.9th {percentile(waits, 0.999):.1f} ms; {note}"
    goal = Goal(50, at_least=False, of="value")
    return Row("wide", case, max(waits), "ms", goal=goal, note=words)


def _others(broker: KstoreBroker, settings: Settings) -> list[Row]:
    seconds = settings.pick(60, 15)
    alone = _waits(broker, seconds / 2)
    found = [_row("the longest wait of a small request, alone", alone, f"of {len(alone):,}")]
    sent: list[int] = []
    with _senders(broker, 1, sent):
        waits = _waits(broker, seconds)
    note = f"of {len(waits):,}, beside {len(sent)} wide requests on one connection"
    found.append(_row("the longest wait of a small request, beside wide ones", waits, note))
    return found


def _memory(broker: KstoreBroker, settings: Settings) -> list[Row]:
    seconds, sent = settings.pick(60, 20), list[int]()
    measured: list[float] = []
    begin = memory_mb(broker.pid)["Rss"]
    with _senders(broker, 20, sent):
        for _ in range(10):
            time.sleep(seconds / 10)
            measured.append(memory_mb(broker.pid)["Rss"])
    time.sleep(2)
    after = memory_mb(broker.pid)["Rss"]
    course = ", ".join(f"{value:.0f}" for value in measured)
    note = f"{begin:.0f} before; {course} in {seconds} s of {len(sent)} requests; {after:.0f} after"
    return [Row("wide", "20 connections that send wide requests", max(measured), "MB", note=note)]


def _served(
    settings: Settings, measure: Callable[[KstoreBroker], list[Row]], name: str
) -> list[Row]:
    folder = settings.scratch / name
    with KstoreBroker(folder, overrides=brokers.SAME) as broker:
        brokers.create_topic(broker, TOPIC, 1)
        progress(f"  {name}")
        return measure(broker)


def rows(settings: Settings) -> list[Row]:
    """The measured rows."""
    logging.disable(logging.ERROR)
    try:
        found = _served(settings, lambda broker: _others(broker, settings), "waits")
        found += _served(settings, lambda broker: _memory(broker, settings), "memory")
        return found + _holds(settings)
    finally:
        logging.disable(logging.NOTSET)
