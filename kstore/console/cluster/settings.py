"""The settings of a console: which cluster, who may log in and how, and what it may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["BEARER", "ConsoleSettings", "Login"]

BEARER = "OAUTHBEARER"
"""The mechanism whose users log in with a token of their own, which names them."""
CREDENTIALS = ("sasl.username", "sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url")


class Login(StrEnum):
    """How a user logs in."""

    PASSWORD = "password"
    """With the user and password, or the OAuth token, of a SASL listener; the cluster checks them.
    """
    TOKEN = "token"
    """With the console's token. All users have the rights of the console's own connection."""
    NONE = "none"
    """Not at all: only requests that name this machine are answered."""


@dataclass(frozen=True)
class ConsoleSettings:
    """client: settings of the connections to the cluster, under Kafka's names."""

    client: Mapping[str, Any] = field(repr=False)
    read_only: bool = False
    registry: str | None = None
    """The URL of a schema registry, for Avro."""
    token: str | None = field(default=None, repr=False)
    mechanisms: tuple[str, ...] = ()
    """Those of SASL that a login tries, one after the other; none: the client settings say it."""
    proxy_key: str | None = field(default=None, repr=False)
    """What only the broker knows that hands requests on; others are not answered."""

    @property
    def tried(self) -> tuple[str, ...]:
        """The mechanisms that a login tries."""
        return self.mechanisms or (str(self.client.get("sasl.mechanism", "PLAIN")),)

    @property
    def login(self) -> Login:
        """How a user logs in: with a password where the listener has SASL and the settings have no
        credentials.
        """
        protocol = str(self.client.get("security.protocol", "PLAINTEXT")).upper()
        given = any(self.client.get(name) for name in CREDENTIALS)
        if protocol.startswith("SASL_") and not given:
            return Login.PASSWORD
        return Login.TOKEN if self.token else Login.NONE
