"""Notifies the service manager (systemd) when the broker starts, is ready and stops, and that it is
alive.

The protocol is sd_notify's: lines of NAME=value in a datagram to the socket that NOTIFY_SOCKET
names. Pings of the watchdog are timers of the loop, so a loop that is stuck sends none, and the
service manager ends the broker. Loaded only if NOTIFY_SOCKET is set.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

__all__ = ["ServiceManager"]

SOCKET, WATCHDOG_US, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
OnReady = Callable[[str, int, "str | None"], None]
"""Called with host, port and, if there is one, the URL of the HTTP API."""
PINGS = 2
"""Pings in each period of the watchdog, as systemd recommends."""


class Timers(Protocol):
    """The part of the loop that it uses."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call once, after this many seconds."""
        ...


class ServiceManager:
    """Sends notifications; they never block, and their errors do not affect the broker."""

    def __init__(
        self, environment: Mapping[str, str], loop: Timers, report: Callable[[str], object]
    ) -> None:
        """``report`` reports a sentence to the operator, once, if nothing can be sent."""
        address = environment[SOCKET]
        # A leading @ stands for the zero byte of an abstract socket.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._loop = loop
        self._report: Callable[[str], object] | None = report
        self._timer: asyncio.TimerHandle | None = None
        self._stopping: asyncio.Future[None] | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._ping_s = _watchdog_s(environment) / PINGS

    def attend(self, on_ready: OnReady, stop: asyncio.Event) -> OnReady:
        """Report the start now, and the stop when ``stop`` is set. Returns a replacement for
        ``on_ready`` that also reports that the broker is ready.
        """
        self._send("STATUS=Opening the logs")
        self._stopping = asyncio.ensure_future(self._notify_stopping(stop))

        def ready(host: str, port: int, api_url: str | None) -> None:
            self.ready(f"Serving clients at {host} port {port}")
            on_ready(host, port, api_url)

        return ready

    def ready(self, sentence: str) -> None:
        """The broker serves clients; from now on the watchdog gets pings."""
        self._send(f"READY=1\nSTATUS={sentence}")
        if self._ping_s > 0:
            self._ping()

    def close(self) -> None:
        """Stop sending."""
        if self._stopping is not None:
            self._stopping.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._socket.close()

    async def _notify_stopping(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._send("STOPPING=1\nSTATUS=Stopping")

    def _ping(self) -> None:
        self._send("WATCHDOG=1")
        self._timer = self._loop.call_later(self._ping_s, self._ping)

    def _send(self, text: str) -> None:
        try:
            self._socket.sendto(text.encode(), self._address)
        except BlockingIOError:
            return  # it has not read the last pings; another one follows
        except OSError as error:
            if self._report is not None:
                self._report(f"the service manager can't be notified: {error.strerror or error}")
                self._report = None


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """The watchdog's period; 0: there is none, or it is for another process."""
    period_us = environment.get(WATCHDOG_US, "")
    if not period_us.isdecimal() or environment.get(WATCHDOG_PID, str(os.getpid())) != str(
        os.getpid()
    ):
        return 0.0
    return int(period_us) / 1_000_000
