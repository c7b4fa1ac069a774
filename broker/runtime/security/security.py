"""The parts of a broker that only a listener other than PLAINTEXT needs: TLS, authentication of
clients, and connections to other brokers. It is imported only if there is such a listener.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kstore.broker.coordination.store import StoreError
from kstore.broker.runtime.security.authentication_counts import TLS, AuthenticationCounts, Outcome
from kstore.broker.runtime.security.unauthenticated import Unauthenticated
from kstore.config import ConfigError

if TYPE_CHECKING:
    import asyncio
    import socket
    import ssl

    from kstore._fast.network.connection import Connection
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.listener_settings import ListenerSettings
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.peers.login import PeerLogin
    from kstore.broker.runtime.security.authentication import Authentications, Dispatch
    from kstore.broker.runtime.security.scram_users import ScramUsers
    from kstore.broker.runtime.security.tls import BrokerTls
    from kstore.broker.runtime.security.tls_acceptor import TlsAcceptor
    from kstore.config.listener import Listener

__all__ = ["Security"]


class Security:
    """The security of one broker. Raises ConfigError for invalid settings or files."""

    def __init__(
        self,
        node: Node,
        settings: ListenerSettings,
        scram: Lazy[ScramUsers],
        dispatch: Dispatch,
        *,
        has_peers: bool,
    ) -> None:
        """``dispatch`` answers the request of an unauthenticated client. ``has_peers``: the broker
        connects to other brokers.
        """
        config = node.config
        own = config.inter_broker_listener
        self.peer_listener = own.name
        """The inter-broker listener."""
        self.protocols = config.listener_protocols
        self.unauthenticated = Unauthenticated(config, node.loop)
        self.counts = AuthenticationCounts()
        self.tls: BrokerTls | None = None
        """The keys of the listeners. None if none has TLS."""
        self.sasl: Authentications | None = None
        """The authentications of clients. None if no listener has SASL."""
        self._by_certificate = {each.name for each in config.listeners if each.protocol == "SSL"}
        self._node = node
        self._settings = settings
        self._login: PeerLogin | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        if any(each.tls for each in config.listeners):
            from kstore.broker.runtime.security.tls import BrokerTls

            self.tls = BrokerTls(node, settings)
            for each in config.listeners:
                if each.tls:
                    self.counts.begin(each.name, [TLS])
        if any(each.sasl for each in config.listeners):
            from kstore.broker.runtime.security.authentication import Authentications

            self.sasl = Authentications(
                node, settings, scram, self.unauthenticated, self.counts, dispatch
            )
            self._warn()
        if own.sasl and has_peers:
            self._login = _peer_login(node, settings, own.name)
        self.own_principal = self._own_principal(own)
        """The principal of this broker on other brokers. None if it is not known, because the
        broker logs in with a certificate or a token.
        """

    def _warn(self) -> None:
        """Warn about settings that, as in Kafka, must be set for each listener with SASL."""
        config = self._node.config
        for name, where in (
            ("sasl.jaas.config", "listener.name.NAME.MECHANISM.sasl.jaas.config"),
            ("ssl.client.auth", "listener.name.NAME.ssl.client.auth"),
        ):
            if config.source(name).kind != "default" and config[name] != "none":
                self._node.report(
                    f"{name} ({config.source(name)}) is ignored for listeners with SASL: set "
                    f"{where}"
                )

    def _own_principal(self, own: Listener) -> str | None:
        if own.sasl:
            user = None if self._login is None else self._login.user
            return None if user is None else f"User:{user}"
        name = "ssl.client.auth"
        asks = own.tls and self._settings.of(own.name, [name])[name] != "none"
        return None if asks else "User:ANONYMOUS"

    def close(self) -> None:
        """Called when the broker stops."""
        if self.tls is not None:
            self.tls.close()
        if self.sasl is not None:
            self.sasl.close()

    # ---- clients ----

    def acceptor(
        self, listener: str, factory: Callable[[], Connection], sockets: list[socket.socket]
    ) -> TlsAcceptor | None:
        """The acceptor of a listener with TLS. None for a listener without TLS."""
        tls = self.tls
        if tls is None or listener not in tls.names:
            return None
        from kstore.broker.runtime.security.tls_acceptor import TlsAcceptor

        def failed() -> None:
            self.counts.add("failed", listener, TLS)

        def context() -> ssl.SSLContext:
            return tls.server(listener)

        return TlsAcceptor(
            self._node, self.unauthenticated, context, factory, sockets, failed, listener
        )

    def check(self, requested: Mapping[str, str]) -> None:
        """Check that the listeners would be valid with these dynamic settings of this broker.
        Raises ConfigError.
        """
        if self.tls is not None:
            self.tls.check(requested)
        if self.sasl is not None:
            for listener in self.sasl.listeners.values():
                listener.check(requested)

    def users_changed(self) -> None:
        """Called when settings of users or of this broker have changed: closes the connections of
        users with a new password. This is done a little later, so that a client that has changed
        its own password gets the response.
        """
        if self.sasl is None:
            return
        user = None if self._login is None else self._login.user
        task = self._node.loop.create_task(self._end_changed((self.peer_listener, user)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_changed(self, peer: tuple[str, str | None]) -> None:
        assert self.sasl is not None
        try:
            await self.sasl.end_changed(peer)
        except StoreError as problem:
            self._node.report(f"the users whose passwords have changed can't be read: {problem}")

    def admit(self, connection: Connection) -> str | None:
        """Authenticate a new client by its certificate, or begin SASL. Returns the reason if it is
        refused.
        """
        refusal = None
        if self.tls is not None:
            refusal = self.tls.name_by_certificate(connection)
            if connection.listener in self._by_certificate:
                outcome: Outcome = "successful" if refusal is None else "failed"
                self.counts.add(outcome, connection.listener, TLS)
        if refusal is None and self.sasl is not None:
            self.sasl.begin(connection)
        return refusal

    def lost(self, connection: Connection) -> None:
        """A connection was closed."""
        if self.sasl is not None:
            self.sasl.lost(connection)

    # ---- other brokers ----

    async def connect(
        self, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[Any, float | None]:
        """Connect to another broker with the TLS and SASL of its listener. Returns the protocol
        that ``factory`` created, and for how many seconds the connection may be used (None: without
        limit). Raises OSError.
        """
        tls: dict[str, Any] = {}
        if self.tls is not None and self.tls.peer is not None:
            tls["ssl"] = self.tls.peer
        if self._login is not None:
            return await self._login.connect(factory, host, port, tls)
        _, protocol = await self._node.loop.create_connection(factory, host, port, **tls)
        return protocol, None


PEER_MECHANISM = "sasl.mechanism.inter.broker.protocol"
FOR_TOKENS = (
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope",
)


def _peer_login(node: Node, settings: ListenerSettings, listener: str) -> PeerLogin:
    """This broker's login at other brokers, from the listener's sasl.jaas.config."""
    from kstore.broker.runtime.peers.login import PeerLogin
    from kstore.broker.runtime.security.sasl_listeners import MECHANISMS

    found = settings.of(listener, (PEER_MECHANISM, *FOR_TOKENS))
    mechanism = found.pop(PEER_MECHANISM)
    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"{PEER_MECHANISM} is {mechanism}, but the listener {listener}, through which brokers "
            f"connect to each other, has SASL: it must be one of {', '.join(MECHANISMS)}",
            key=PEER_MECHANISM,
        )
    jaas = f"{mechanism.lower()}.sasl.jaas.config"
    text = settings.of(listener, (jaas,))[jaas]
    given = {name: value for name, value in found.items() if value is not None}
    if text is not None:
        given["sasl.jaas.config"] = text
    given["sasl.mechanism"] = mechanism
    try:
        return PeerLogin(node, given)
    except ConfigError as problem:
        raise ConfigError(
            f"listener.name.{listener.lower()}.{jaas}, the login of this broker at other brokers: "
            f"{problem}",
            key=problem.key,
        ) from None
