"""The keys of a broker's listeners, and those it shows to other brokers: read at the start, and
anew when a file of them has changed or other settings were made at run time
(listener.name.NAME.ssl.*), for connections that are made from then on.

What a context is made of is kstore/net/tls.py's.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kstore.config import ConfigError
from kstore.config.broker_configs import BROKER_CONFIGS
from kstore.config.security_configs import LISTENER_SSL
from kstore.net.tls import client_context, server_context, store_files

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["BrokerTls"]

LOOK_S = 2.0
"""How often the files are looked at."""


class BrokerTls:
    """The TLS contexts of one broker; ConfigError for settings or files that can't be used."""

    def __init__(self, broker: Broker) -> None:
        config = broker.config
        self.servers: dict[str, ssl.SSLContext] = {}
        """By listener, of those that speak TLS."""
        self.peer: ssl.SSLContext | None = None
        """For connections to other brokers; None: they are in plain text."""
        self._broker = broker
        self._config = config
        self._loop = broker.loop
        self._report = broker.report
        self._current: dict[str, ssl.SSLContext] = {}
        self._trouble = ""
        self._names = [each.name for each in config.listeners if each.protocol == "SSL"]
        own = config.inter_broker_listener
        self.peer_listener = own.name
        """Where brokers reach each other."""
        self.protocols = {each.name: each.protocol for each in config.advertised_listeners}
        self._peers_speak_tls = own.protocol == "SSL"
        self._load()
        for name in self._names:
            self.servers[name] = self._entrance(name)
        self._seen = self._look_at()
        self._timer = self._loop.call_later(LOOK_S, self._look)

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
        """A listener's: what was set at run time for it, at the start for it, or for all."""
        config = self._config
        dynamic: Mapping[str, str] = {}
        if hasattr(self._broker, "configs"):  # not before the store is open
            dynamic = self._broker.configs.brokers.get(str(self._broker.node_id), {})
        found: dict[str, Any] = {}
        for name in LISTENER_SSL:
            text = dynamic.get(f"listener.name.{listener.lower()}.{name}")
            value = config.for_listener(listener, name)
            if text is not None:
                value = BROKER_CONFIGS[name].parse(text, "dynamic")
            found[name] = config[name] if value is None else value
        return found

    def _entrance(self, name: str) -> ssl.SSLContext:
        """The context that a listener keeps: each handshake goes on with the newest one."""
        entrance = server_context(self._settings(name))

        def take_newest(link: ssl.SSLObject, host: str, context: ssl.SSLContext) -> None:
            link.context = self._current[name]

        entrance.sni_callback = take_newest
        return entrance

    def _look_at(self) -> list[Any]:
        """The settings of all listeners, and what their files look like; ConfigError."""
        settings = [self._settings(name) for name in self._names]
        paths = {path for each in settings for path in store_files(each)}
        return [settings, {path: _stamp(path) for path in paths}]

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        try:
            seen = self._look_at()
            if seen == self._seen:
                return
            self._seen = seen
            self._load()
        except ConfigError as problem:
            if self._trouble != str(problem):
                self._report(f"the keys of before stay in use: {problem}")
            self._trouble = str(problem)
        else:
            self._trouble = ""
            self._report("the key and trust stores have changed, and are in use now")


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
