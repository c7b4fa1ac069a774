"""The settings of a console: its cluster, logins, and permissions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["BEARER", "ConsoleSettings", "Login"]

BEARER = "OAUTHBEARER"
"""The mechanism whose users log in with their own token, which names them."""
CREDENTIALS = ("sasl.username", "sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url")


class Login(StrEnum):
    """How a user logs in."""

    PASSWORD = "password"
    """With the user and password, or the OAuth token, of a SASL listener; the cluster verifies
    them.
    """
    TOKEN = "token"
    """With the console's token. All users have the permissions of the console's own connection."""
    NONE = "none"
    """Without a login: only requests to a name of this machine are answered."""


@dataclass(frozen=True)
class ConsoleSettings:
    """client: settings of the connections to the cluster, with Kafka's names."""

    client: Mapping[str, Any] = field(repr=False)
    read_only: bool = False
    registry: str | None = None
    """The URL of a schema registry, for Avro."""
    token: str | None = field(default=None, repr=False)
    mechanisms: tuple[str, ...] = ()
    """The SASL mechanisms that a login tries in order; empty: the one of the client settings."""
    proxy_key: str | None = field(default=None, repr=False)
    """A secret that only the broker that forwards requests knows; others are refused."""

    @property
    def tried(self) -> tuple[str, ...]:
        """The mechanisms that a login tries."""
        return self.mechanisms or (str(self.client.get("sasl.mechanism", "PLAIN")),)

    @property
    def login(self) -> Login:
        """How a user logs in: with a password if the listener uses SASL and the settings have no
        credentials.
        """
        protocol = str(self.client.get("security.protocol", "PLAINTEXT")).upper()
        given = any(self.client.get(name) for name in CREDENTIALS)
        if protocol.startswith("SASL_") and not given:
            return Login.PASSWORD
        return Login.TOKEN if self.token else Login.NONE
