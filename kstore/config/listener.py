"""A listener's address: ``NAME://host:port``, as in listeners and advertised.listeners. It only
parses; nothing is bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from kstore.config.definition import ConfigError

__all__ = ["Listener", "ListenerSettings", "parse_listeners"]

_SUPPORTED = {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}


class Listener(NamedTuple):
    """An address to listen on, or one for clients; port 0 means a free port, an empty host every
    interface.

    ``localhost`` may be an IPv4 and an IPv6 address: code that binds it with port 0 must use one
    port for both.
    """

    name: str
    protocol: str
    host: str
    port: int

    @property
    def tls(self) -> bool:
        """Whether it uses TLS."""
        return self.protocol in {"SSL", "SASL_SSL"}

    @property
    def sasl(self) -> bool:
        """Whether clients must authenticate with SASL."""
        return self.protocol.startswith("SASL_")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class ListenerSettings(Protocol):
    """Settings with their sources; implemented by BrokerConfig."""

    def __getitem__(self, name: str) -> Any:
        """A setting's value."""

    def source(self, name: str) -> object:
        """The source of its value, for messages."""


def parse_listeners(
    config: ListenerSettings, key: str, items: Iterable[str]
) -> tuple[Listener, ...]:
    """Parse the items of ``listeners`` or ``advertised.listeners``.

    Raises ConfigError for an address that is not NAME://host:port, a name or port that is used
    twice, and an unsupported security protocol.
    """
    protocols = _protocols(config)
    found: list[Listener] = []
    for item in items:
        listener = _parse(config, key, item, protocols)
        for other in found:
            same_port = listener.port and (other.host, other.port) == (listener.host, listener.port)
            if other.name == listener.name or same_port:
                raise _error(config, key, item, f"uses the name or port of {other} again")
        found.append(listener)
    return tuple(found)


def _protocols(config: ListenerSettings) -> dict[str, str]:
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for item in filter(None, config[key].split(",")):
        name, colon, protocol = item.partition(":")
        if not colon:
            raise _error(config, key, item, "must be NAME:PROTOCOL")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def _parse(config: ListenerSettings, key: str, item: str, protocols: dict[str, str]) -> Listener:
    name, slashes, address = item.partition("://")
    host, colon, port = address.rpartition(":")
    name = name.upper()
    if not slashes or not colon or not name or not port.isascii() or not port.isdigit():
        raise _error(
            config, key, item, "must be NAME://host:port, such as PLAINTEXT://localhost:9092"
        )
    if int(port) > 65535:
        raise _error(config, key, item, "has a port above 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise _error(
            config, key, item, "must have its IPv6 address in brackets, as in NAME://[::1]:9092"
        )
    protocol = protocols.get(name, name)
    if protocol not in _SUPPORTED:
        known = ", ".join(sorted(_SUPPORTED))
        raise _error(
            config, key, item,
            f"uses the security protocol {protocol}; supported are: {known} "
            "(listener.security.protocol.map gives a name its protocol)",
        )  # fmt: skip
    return Listener(name, protocol, host, int(port))


def _error(config: ListenerSettings, key: str, item: str, problem: str) -> ConfigError:
    return ConfigError(f"{key} ({config.source(key)}): {item} {problem}", key=key)
