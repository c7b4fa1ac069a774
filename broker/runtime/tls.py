"""The keys of a broker's listeners, and those it shows to other brokers: read at the start, and
anew when a file of them has changed, for connections that are made from then on.

What a context is made of is kstore/net/tls.py's.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kstore.config import ConfigError
from kstore.config.security_configs import LISTENER_SSL
from kstore.net.tls import client_context, server_context, store_files

if TYPE_CHECKING:
    from kstore.config import BrokerConfig

__all__ = ["BrokerTls"]

LOOK_S = 2.0
"""How often the files are looked at."""


class BrokerTls:
    """The TLS contexts of one broker; ConfigError for settings or files that can't be used."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        report: Callable[[str], None],
    ) -> None:
        self.servers: dict[str, ssl.SSLContext] = {}
        """By listener, of those that speak TLS."""
        self.peer: ssl.SSLContext | None = None
        """For connections to other brokers; None: they are in plain text."""
        self._config = config
        self._loop = loop
        self._report = report
        self._current: dict[str, ssl.SSLContext] = {}
        self._names = [each.name for each in config.listeners if each.protocol == "SSL"]
        own = config.inter_broker_listener
        self.peer_listener = own.name
        """Where brokers reach each other."""
        self.protocols = {each.name: each.protocol for each in config.advertised_listeners}
        self._peers_speak_tls = own.protocol == "SSL"
        self._load()
        for name in self._names:
            self.servers[name] = self._entrance(name)
        self._seen = self._stamps()
        self._timer = loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """Look at no file any more."""
        self._timer.cancel()

    def _load(self) -> None:
        """Make all contexts anew, or, with a ConfigError, none."""
        made = {name: server_context(self._settings(name)) for name in self._names}
        peer = None
        if self._peers_speak_tls:
            peer = client_context(self._settings(self.peer_listener))
        self._current, self.peer = made, peer

    def _settings(self, listener: str) -> Mapping[str, Any]:
        config = self._config
        own = {name: config.for_listener(listener, name) for name in LISTENER_SSL}
        return {name: config[name] if value is None else value for name, value in own.items()}

    def _entrance(self, name: str) -> ssl.SSLContext:
        """The context that a listener keeps: each handshake goes on with the newest one."""
        entrance = server_context(self._settings(name))

        def take_newest(link: ssl.SSLObject, host: str, context: ssl.SSLContext) -> None:
            link.context = self._current[name]

        entrance.sni_callback = take_newest
        return entrance

    def _stamps(self) -> dict[str, tuple[int, int, int] | None]:
        paths = {path for name in self._names for path in store_files(self._settings(name))}
        return {path: _stamp(path) for path in paths}

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            self._load()
        except ConfigError as problem:
            self._report(f"the keys of before stay in use: {problem}")
        else:
            self._report("the key and trust stores have changed, and are in use now")


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
