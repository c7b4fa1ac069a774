"""The configuration of listeners with SASL: settings, the users of PLAIN, the SCRAM credentials in
the store, and trusted token issuers.

authentication.py uses it for each connection. Imported only if a listener has SASL.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

from kstore.broker.runtime.security.scram_users import find
from kstore.config import ConfigError
from kstore.config.jaas import one_jaas_entry
from kstore.config.sasl_configs import PER_MECHANISM, SASL_CONFIGS
from kstore.net.sasl_server import (
    OAuthBearerServer,
    PlainServer,
    SaslServer,
    ScramServer,
    TokenLogin,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.listener_settings import ListenerSettings
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.security.scram_users import ScramUsers
    from kstore.broker.state.security.scram_credentials import ScramCredential
    from kstore.net.sasl_server import Claim

__all__ = ["MECHANISMS", "SaslListener"]

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (PLAIN, *SCRAM, OAUTHBEARER)
JAAS = "sasl.jaas.config"
HANDLER = "sasl.server.callback.handler.class"
REAUTH = "connections.max.reauth.ms"
OF_MECHANISM = (JAAS, HANDLER, REAUTH)
SECURITY = "org.apache.kafka.common.security."
HANDLERS = {
    PLAIN: {f"{SECURITY}plain.internals.PlainServerCallbackHandler"},
    OAUTHBEARER: {
        f"{SECURITY}oauthbearer.OAuthBearerValidatorCallbackHandler",
        f"{SECURITY}oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
    },
}
LISTENER_SASL = tuple(row.name for row in SASL_CONFIGS if row.name not in PER_MECHANISM)


class SaslListener:
    """One listener with SASL, with its current settings.

    Raises ConfigError for invalid settings.
    """

    def __init__(
        self, node: Node, settings: ListenerSettings, scram: Lazy[ScramUsers], name: str
    ) -> None:
        self.name = name
        self._node = node
        self._of_listeners = settings
        self._scram = scram
        self._settings = self._read()
        self._users: dict[str, str] = {}
        self._tokens: Any = None
        self._changes: dict[str, int] = {}  # how often a password of PLAIN changed
        self._load()

    def close(self) -> None:
        """Stop reading keys."""
        if self._tokens is not None:
            self._tokens.close()

    @property
    def mechanisms(self) -> list[str]:
        """The mechanisms that clients may choose."""
        return list(self._settings["sasl.enabled.mechanisms"])

    def __getitem__(self, name: str) -> Any:
        return self._settings[name]

    def max_session_ms(self, mechanism: str) -> int:
        """The longest session in ms. 0: no limit."""
        value = self._of_mechanism(mechanism, REAUTH)
        return max(int(value or 0), 0)

    def refresh(self) -> None:
        """Apply dynamic settings. Invalid ones are reported."""
        settings = self._read()
        if settings == self._settings:
            return
        before, self._settings = self._settings, settings
        try:
            self._load()
        except ConfigError as problem:
            self._settings = before
            self._node.report(f"listener {self.name} keeps its previous settings: {problem}")

    def check(self, requested: Mapping[str, str]) -> None:
        """Check that the listener would be valid with these dynamic settings of this broker. Raises
        ConfigError.
        """
        before, self._settings = self._settings, self._read(requested)
        try:
            _, tokens = self._made()
        finally:
            self._settings = before
        if tokens is not None:
            tokens.close()

    def changes(self, user: str) -> int:
        """A number that changes with each change of PLAIN's users or passwords."""
        return self._changes.get(user, 0)

    def stored_key(self, mechanism: str, claim: Claim) -> bytes | None:
        """The stored key of a user's SCRAM password, or of a token. None if the user or token no
        longer exists. Blocks.
        """
        if claim.is_token:
            tokens = self._scram().tokens
            is_valid = tokens is not None and tokens.is_valid(claim.name)
            return claim.stored_key if is_valid else None
        found = find(self._scram(), mechanism, claim.name)
        return None if found is None else found.stored_key

    def server(self, mechanism: str) -> SaslServer:
        """The server side of one authentication, with an enabled mechanism."""
        if mechanism == PLAIN:
            return PlainServer(self._knows)
        if mechanism == OAUTHBEARER:
            return OAuthBearerServer(self._tokens.check)

        def credential(user: str) -> ScramCredential | None:
            return find(self._scram(), mechanism, user)

        def of_token(token_id: str) -> TokenLogin | None:
            tokens = self._scram().tokens
            found = None if tokens is None else tokens.keys(mechanism, token_id)
            if found is None:
                return None
            return TokenLogin(found.token.owner.name, found.token.expires_ms, found.credential)

        return ScramServer(mechanism, credential, of_token)

    def step(self, server: SaslServer, token: bytes) -> bytes | Awaitable[bytes]:
        """The response to a client's next message, or an awaitable of it. Raises
        SaslRefusedError.
        """
        if isinstance(server, OAuthBearerServer):  # it may fetch keys over the network
            return self._node.loop.run_in_executor(None, server.step, token)
        if isinstance(server, ScramServer) and not server.begun:
            scram = self._scram()
            tokens = scram.tokens
            takes_long = tokens is not None and tokens.is_valid(server.name_in(token))
            if takes_long or not scram.in_memory:
                return self._node.run_blocking(lambda: server.step(token))
        return server.step(token)

    # ---- settings ----

    def _read(self, requested: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        names = [*LISTENER_SASL, REAUTH]
        names += [f"{each.lower()}.{base}" for each in MECHANISMS for base in OF_MECHANISM]
        return self._of_listeners.of(self.name, names, requested=requested)

    def _of_mechanism(self, mechanism: str, name: str) -> Any:
        own = self._settings.get(f"{mechanism.lower()}.{name}")
        return self._settings.get(name) if own is None else own

    def _load(self) -> None:
        """Read the users and token issuers from the settings. Raises ConfigError."""
        users, tokens = self._made()
        self.close()
        for user in self._users.keys() | users.keys():
            if self._users.get(user) != users.get(user):
                self._changes[user] = self._changes.get(user, 0) + 1
        self._users, self._tokens = users, tokens

    def _made(self) -> tuple[dict[str, str], Any]:
        """The users of PLAIN and the token issuers in the settings. Raises ConfigError."""
        key = "sasl.enabled.mechanisms"
        known = ", ".join(MECHANISMS)
        for mechanism in self.mechanisms or [""]:
            if mechanism not in MECHANISMS:
                hint = (
                    " (Kafka's default; Kerberos is not supported)" if mechanism == "GSSAPI" else ""
                )
                raise ConfigError(
                    f"{key} of listener {self.name} names {mechanism or 'nothing'}{hint}; it must "
                    f"be one of {known}",
                    key=key,
                )
            handler = self._settings.get(f"{mechanism.lower()}.{HANDLER}")
            if handler and handler not in HANDLERS.get(mechanism, ()):
                raise ConfigError(
                    f"listener.name.{self.name.lower()}.{mechanism.lower()}.{HANDLER} is {handler}:"
                    " a Java class can't be loaded here; remove it",
                    key=HANDLER,
                )
        users = self._plain_users() if PLAIN in self.mechanisms else {}
        tokens = self._trusted_tokens() if OAUTHBEARER in self.mechanisms else None
        return users, tokens

    def _plain_users(self) -> dict[str, str]:
        key = f"listener.name.{self.name.lower()}.plain.{JAAS}"
        text = self._settings.get(f"plain.{JAAS}")
        if text is None:
            raise ConfigError(
                f"{key} must list the users of PLAIN: "
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="...";',
                key=key,
            )
        options = one_jaas_entry(text, key).options
        prefix = "user_"
        return {
            name.removeprefix(prefix): password
            for name, password in options.items()
            if name.startswith(prefix)
        }

    def _trusted_tokens(self) -> Any:
        from kstore.broker.runtime.security.bearer_tokens import BearerTokens

        return BearerTokens(self._settings, self.name, self._node.report)

    # ---- users ----

    def _knows(self, user: str, password: str) -> bool:
        expected = self._users.get(user)
        same = hmac.compare_digest(password.encode(), (expected or "").encode())
        return same and bool(expected)
