"""SASL on the connecting side: the mechanisms PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER
as bytes in and bytes out, created from Kafka's client settings; and the exchange over requests.

It opens no connection and fetches no token: sasl_login.py does, and renews tokens before they
expire. Names and passwords are used unchanged (UTF-8, no SASLprep), as in Kafka.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, cast

from kstore.config.definition import ConfigError
from kstore.config.jaas import JaasEntry, one_jaas_entry
from kstore.errors import (
    ErrorCode,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    error_for,
)
from kstore.protocol.schema import Message
from kstore.protocol.security.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

__all__ = [
    "MECHANISMS",
    "Credentials",
    "SaslClient",
    "Token",
    "authenticate",
    "credentials_of",
    "make_client",
]

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = (PLAIN, *_HASHES, OAUTHBEARER)
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 1_000_000
"""A larger number would let a malicious broker keep this process busy."""


class Token(NamedTuple):
    """An OAuth bearer token, and its expiry time."""

    text: str
    expires_at_s: float | None = None
    """Seconds since 1970, or None if unknown."""
    extensions: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """Without the token."""
        return f"Token(expires_at_s={self.expires_at_s})"


class Credentials(NamedTuple):
    """The user and password of PLAIN and SCRAM."""

    user: str
    password: str
    is_token: bool = False
    """Whether they are a delegation token's id and HMAC (KIP-48)."""

    def __repr__(self) -> str:
        """Without the password."""
        return f"Credentials({self.user!r})"


class SaslClient(ABC):
    """One authentication, step by step."""

    mechanism: str
    done = False
    """Whether the other side has proven everything that the mechanism requires."""

    @abstractmethod
    def first(self) -> bytes:
        """The first message."""

    @abstractmethod
    def step(self, challenge: bytes) -> bytes | None:
        """The next message; None after the last one.

        Raises SaslAuthenticationFailedError for an invalid challenge.
        """


class _Plain(SaslClient):
    mechanism = PLAIN

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def first(self) -> bytes:
        return b"\0" + b"\0".join(part.encode() for part in self._credentials[:2])

    def step(self, challenge: bytes) -> bytes | None:
        self.done = True
        return None


class _Scram(SaslClient):
    """RFC 5802 and 7677, without channel binding; with Kafka's extension for delegation tokens."""

    def __init__(self, mechanism: str, credentials: Credentials, nonce: str | None = None) -> None:
        self.mechanism = mechanism
        self._hash = _HASHES[mechanism]
        self._credentials = credentials
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._server_signature = b""

    def first(self) -> bytes:
        return b"n,," + self._first_bare()

    def step(self, challenge: bytes) -> bytes | None:
        fields = _scram_fields(challenge)
        if self._server_signature:
            self._check_end(fields)
            return None
        return self._prove(challenge, fields)

    def _first_bare(self) -> bytes:
        name = self._credentials.user.replace("=", "=3D").replace(",", "=2C")
        extension = ",tokenauth=true" if self._credentials.is_token else ""
        return f"n={name},r={self._nonce}{extension}".encode()

    def _prove(self, challenge: bytes, fields: Mapping[str, str]) -> bytes:
        nonce, iterations = fields.get("r", ""), fields.get("i", "")
        try:
            salt = base64.b64decode(fields.get("s", ""), validate=True)
        except binascii.Error:
            salt = b""
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise _bad(self.mechanism, "its nonce does not begin with this client's")
        if "m" in fields:
            raise _bad(self.mechanism, "it requires an extension that is not known here")
        if not salt or not (iterations.isascii() and iterations.isdecimal()):
            raise _bad(self.mechanism, "its first message lacks salt or iterations")
        if len(iterations) > 9 or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise _bad(
                self.mechanism,
                f"it asks for {iterations[:9]} iterations; from {MIN_ITERATIONS} to "
                f"{MAX_ITERATIONS} are allowed here",
            )
        password = self._credentials.password.encode()
        salted = hashlib.pbkdf2_hmac(self._hash, password, salt, int(iterations))
        client_key = self._hmac(salted, b"Client Key")
        final = f"c=biws,r={nonce}".encode()
        signed = b",".join((self._first_bare(), challenge, final))
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return final + b",p=" + base64.b64encode(proof)

    def _check_end(self, fields: Mapping[str, str]) -> None:
        if "e" in fields:
            raise _bad(self.mechanism, f"it answers {fields['e'][:100]!r}")
        expected = base64.b64encode(self._server_signature).decode()
        if not hmac.compare_digest(expected.encode(), fields.get("v", "").encode()):
            raise _bad(
                self.mechanism, "it could not prove that it knows the password: do not trust it"
            )
        self.done = True

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._hash)


class _OAuthBearer(SaslClient):
    """RFC 7628, with Kafka's extensions (KIP-342)."""

    mechanism = OAUTHBEARER

    def __init__(self, token: Token) -> None:
        self._token = token
        self._refusal = ""

    def first(self) -> bytes:
        extensions = "".join(f"{key}={value}\x01" for key, value in self._token.extensions.items())
        return f"n,,\x01auth=Bearer {self._token.text}\x01{extensions}\x01".encode()

    def step(self, challenge: bytes) -> bytes | None:
        if not challenge:
            self.done = True
            return None
        if self._refusal:
            raise _bad(self.mechanism, self._refusal)
        # The refusal arrives as a challenge; the broker fails the exchange after the next message.
        self._refusal = _refusal(challenge)
        return b"\x01"


def _refusal(challenge: bytes) -> str:
    try:
        status = json.loads(challenge)["status"]
    except (ValueError, KeyError, TypeError):
        status = repr(challenge[:100])
    return f"it does not take the token: {str(status)[:100]}"


def _scram_fields(message: bytes) -> dict[str, str]:
    pairs = (item.partition("=") for item in message.decode("utf-8", "replace").split(","))
    return {name: value for name, sign, value in pairs if sign}


def _bad(mechanism: str, problem: str) -> SaslAuthenticationFailedError:
    return SaslAuthenticationFailedError(f"{mechanism} with the broker failed: {problem}")


# ---- from settings ----


def make_client(settings: Mapping[str, Any], token: Token | None = None) -> SaslClient:
    """The client for `sasl.mechanism`, with user and password from `sasl.username` and
    `sasl.password` or from `sasl.jaas.config`; OAUTHBEARER needs the token.

    Raises ConfigError if something is missing or the mechanism is unknown.
    """
    mechanism = mechanism_of(settings)
    if mechanism == OAUTHBEARER:
        if token is None:
            raise ConfigError(
                "sasl.mechanism OAUTHBEARER needs a token: set sasl.oauthbearer.token.endpoint.url",
                key="sasl.oauthbearer.token.endpoint.url",
            )
        return _OAuthBearer(token)
    credentials = credentials_of(settings)
    return _Plain(credentials) if mechanism == PLAIN else _Scram(mechanism, credentials)


def mechanism_of(settings: Mapping[str, Any]) -> str:
    """`sasl.mechanism`. Raises ConfigError if it is unknown."""
    name = str(settings["sasl.mechanism"]).strip().upper()
    if name not in MECHANISMS:
        hint = " (Kafka's default; Kerberos is not supported)" if name == "GSSAPI" else ""
        raise ConfigError(
            f"sasl.mechanism is {name}{hint}; it must be one of {', '.join(MECHANISMS)}",
            key="sasl.mechanism",
        )
    return name


def credentials_of(settings: Mapping[str, Any]) -> Credentials:
    """User and password of PLAIN and SCRAM. Raises ConfigError if they are not set, or set
    twice.
    """
    user, password = settings.get("sasl.username"), settings.get("sasl.password")
    text = settings.get("sasl.jaas.config")
    if text and (user is not None or password is not None):
        raise ConfigError(
            "sasl.jaas.config and sasl.username or sasl.password are both set: remove one",
            key="sasl.jaas.config",
        )
    is_token = False
    if text:
        entry = one_jaas_entry(text)
        user, password = entry.options.get("username"), entry.options.get("password")
        is_token = entry.options.get("tokenauth", "").lower() == "true"
    if not user or password is None:
        raise ConfigError(
            f"sasl.mechanism {settings['sasl.mechanism']} needs a user and a password: set "
            "sasl.username and sasl.password, or username and password in sasl.jaas.config",
            key="sasl.jaas.config" if text else "sasl.username",
        )
    if "\0" in user or "\0" in password:
        raise ConfigError("a user or password must not contain NUL", key="sasl.username")
    return Credentials(user, password, is_token)


def jaas_entry(settings: Mapping[str, Any]) -> JaasEntry:
    """The entry of `sasl.jaas.config`, or one without options."""
    text = settings.get("sasl.jaas.config")
    return one_jaas_entry(text) if text else JaasEntry("", {})


# ---- over requests ----


async def authenticate(
    client: SaslClient,
    ask: Callable[[Message, int], Awaitable[Message]],
    address: str,
    *,
    version: int = 2,
) -> int:
    """SaslHandshake and SaslAuthenticate. Returns the session's lifetime in ms, 0 for unlimited
    (KIP-368).

    `ask` sends a request in a version and returns its response; `version` is SaslAuthenticate's.

    Raises UnsupportedSaslMechanismError, SaslAuthenticationFailedError, and the exceptions of
    `ask`.
    """
    hello = cast(
        SaslHandshakeResponse, await ask(SaslHandshakeRequest(mechanism=client.mechanism), 1)
    )
    if hello.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise UnsupportedSaslMechanismError(
            f"{address} does not support SASL mechanism {client.mechanism}, only "
            f"{', '.join(hello.mechanisms) or 'none'}"
        )
    if hello.error_code:
        raise error_for(hello.error_code, f"{address} refuses SASL's handshake")
    message: bytes | None = client.first()
    lifetime_ms = 0
    while message is not None:
        answer = cast(
            SaslAuthenticateResponse,
            await ask(SaslAuthenticateRequest(auth_bytes=message), version),
        )
        if answer.error_code:
            words = answer.error_message or "no reason given"
            raise error_for(answer.error_code, f"{address} refuses {client.mechanism}: {words}")
        lifetime_ms = answer.session_lifetime_ms
        challenge = bytes(answer.auth_bytes)
        if client.mechanism in _HASHES:  # takes milliseconds, too long for the loop
            message = await asyncio.to_thread(client.step, challenge)
        else:
            message = client.step(challenge)
    if not client.done:
        raise _bad(client.mechanism, "the exchange was incomplete")
    return lifetime_ms
