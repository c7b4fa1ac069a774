"""The keys of a broker's listeners, and those for connections to other brokers. They are read at
the start, and again when one of their files or a dynamic setting (listener.name.NAME.ssl.*) has
changed. New keys apply to new connections only.

kstore/net/tls.py creates contexts.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kstore.config import ConfigError
from kstore.config.security_configs import LISTENER_SSL
from kstore.net.principals import MappingRules, subject_name
from kstore.net.tls import client_context, server_context, store_files

if TYPE_CHECKING:
    from kstore._fast.network.connection import Connection
    from kstore.broker.runtime.metadata.listener_settings import ListenerSettings
    from kstore.broker.runtime.node import Node

__all__ = ["BrokerTls"]

CLIENT_AUTH = "ssl.client.auth"
LOOK_S = 2.0
"""How often the files are checked."""


class BrokerTls:
    """The TLS contexts of one broker. Raises ConfigError for invalid settings or files."""

    def __init__(self, node: Node, settings: ListenerSettings) -> None:
        config = node.config
        self.peer: ssl.SSLContext | None = None
        """The context for connections to other brokers. None if these are in plain text."""
        self._of_listeners = settings
        self._config = config
        self._loop = node.loop
        self._report = node.report
        self._servers: dict[str, ssl.SSLContext] = {}  # by listener
        self._rules: dict[str, MappingRules] = {}  # of listeners that take names from certificates
        self._trouble = ""
        self.names = [each.name for each in config.listeners if each.tls]
        """The listeners with TLS."""
        self._dynamic = settings.of_broker
        self._with_sasl = {each.name for each in config.listeners if each.sasl}
        self._peer_listener = config.inter_broker_listener
        self._servers, self.peer, self._rules = self._make()
        self._seen = self._look_at()
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """Stop checking files."""
        self._timer.cancel()

    def server(self, listener: str) -> ssl.SSLContext:
        """The context for the next connection to a listener. Changed dynamic settings apply at
        once, a changed file after the next check.
        """
        dynamic = self._of_listeners.of_broker
        if dynamic is not self._dynamic:
            self._dynamic = dynamic
            self._refresh()
        return self._servers[listener]

    def check(self, requested: Mapping[str, str]) -> None:
        """Check that the contexts would be valid with these dynamic settings of this broker. Raises
        ConfigError.
        """
        self._make(requested)

    def name_by_certificate(self, connection: Connection) -> str | None:
        """Set a connection's principal from its certificate. Returns the reason if it is
        refused.
        """
        rules = self._rules.get(connection.listener)
        link = None if rules is None else connection.tls_object()
        shown = None if link is None else link.getpeercert(binary_form=True)
        if rules is None or shown is None:
            return None
        try:
            name = subject_name(shown)
        except (ValueError, IndexError) as problem:
            return f"its certificate has no name that can be read ({problem})"
        user = rules.apply(name)
        if user is None:
            return f"no rule of ssl.principal.mapping.rules fits the name {name!r}"
        connection.principal = f"User:{user}"
        return None

    def _make(
        self, requested: Mapping[str, str] | None = None
    ) -> tuple[dict[str, ssl.SSLContext], ssl.SSLContext | None, dict[str, MappingRules]]:
        """Create all contexts, and the name rules of listeners that use certificates. ``requested``
        is as in ListenerSettings. Raises ConfigError.
        """
        made = {name: server_context(self._settings(name, requested)) for name in self.names}
        peer = None
        if self._peer_listener.tls:
            peer = client_context(self._settings(self._peer_listener.name, requested))
        rules = {
            each.name: MappingRules(
                self._settings(each.name, requested)["ssl.principal.mapping.rules"]
            )
            for each in self._config.listeners
            if each.protocol == "SSL"
        }
        return made, peer, rules

    def _settings(
        self, listener: str, requested: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        found = self._of_listeners.of(listener, LISTENER_SSL, requested=requested)
        own = self._of_listeners.of(listener, (CLIENT_AUTH,), own=True, requested=requested)
        if listener in self._with_sasl and own[CLIENT_AUTH] is None:
            found[CLIENT_AUTH] = "none"  # as in Kafka, if clients authenticate in another way
        return found

    def _look_at(self) -> list[Any]:
        """The settings of all listeners, and the state of their files. Raises ConfigError."""
        settings = [self._settings(name) for name in self.names]
        paths = {path for each in settings for path in store_files(each)}
        return [settings, {path: _stamp(path) for path in paths}]

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        self._refresh()

    def _refresh(self) -> None:
        try:
            seen = self._look_at()
            if seen == self._seen:
                return
            self._seen = seen
            self._servers, self.peer, self._rules = self._make()
        except ConfigError as problem:
            if self._trouble != str(problem):
                self._report(f"the previous keys stay in use: {problem}")
            self._trouble = str(problem)
        else:
            self._trouble = ""
            self._report("TLS settings or stores have changed; the new ones are in use")


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
