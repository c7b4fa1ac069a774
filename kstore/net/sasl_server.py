"""SASL on the accepting side: the mechanisms PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER as
bytes in and bytes out.

It opens no connection and has no store: functions that are passed in look up users and check
tokens. Names and passwords are used unchanged (UTF-8, no SASLprep), as in Kafka. Clients get
Kafka's messages about a failure; no message contains a password or a token.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Protocol

__all__ = [
    "BearerToken",
    "Claim",
    "OAuthBearerServer",
    "PlainServer",
    "SaslRefusedError",
    "SaslServer",
    "ScramServer",
    "TokenLogin",
    "TokenRefusedError",
]

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS = 4096
MAX_NAME_BYTES = 1024
"""Longer names and token subjects are refused: they would be stored and written to logs."""


class SaslRefusedError(Exception):
    """The client has not authenticated. The message is for the operator; ``client_message`` is for
    the client; None: only that its credentials are invalid.
    """

    def __init__(self, message: str, client_message: str | None = None) -> None:
        super().__init__(message)
        self.client_message = client_message


class TokenRefusedError(Exception):
    """A token is not valid; the message says why, only to the operator."""


class BearerToken(NamedTuple):
    """The content of a valid token."""

    user: str
    expires_at_ms: int


class ScramKeys(Protocol):
    """The stored credential of a user's SCRAM password (RFC 5802)."""

    @property
    def salt(self) -> bytes: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...


class TokenLogin(NamedTuple):
    """The SCRAM credential of a delegation token (KIP-48)."""

    owner: str
    """The principal that its bearer acts as."""
    expires_at_ms: int
    keys: ScramKeys


class Claim(NamedTuple):
    """The SCRAM identity of a client that has logged in, or is about to."""

    name: str
    """The user, or the id of a token."""
    stored_key: bytes
    is_token: bool


class SaslServer(ABC):
    """One authentication, step by step."""

    mechanism: str
    done = False
    """Whether the client has authenticated: ``user``."""
    user = ""
    expires_at_ms: int | None = None
    """When the authentication expires, in milliseconds since 1970."""
    claim: Claim | None = None
    """With SCRAM, after the lookup of the user."""

    @abstractmethod
    def step(self, token: bytes) -> bytes:
        """The response to the client's next message. Raises SaslRefusedError."""


class PlainServer(SaslServer):
    """RFC 4616."""

    mechanism = "PLAIN"

    def __init__(self, check: Callable[[str, str], bool]) -> None:
        """``check(user, password)`` returns whether the password is correct."""
        self._check = check

    def step(self, token: bytes) -> bytes:
        """The only message: authorization id, user, password."""
        parts = token.decode("utf-8", "replace").split("\0")
        if len(parts) != 3:
            client_message = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            raise SaslRefusedError(client_message, client_message)
        wanted, user, password = parts
        if not user or not password:
            lacking = "password" if user else "username"
            raise _failed(f"{lacking} not specified")
        if len(user) > MAX_NAME_BYTES or not self._check(user, password):
            raise _failed("Invalid username or password", f"user {user[:100]!r}: wrong password")
        _same(wanted, user)
        self.user = user
        self.done = True
        return b""


_NONCE = r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
_MORE = r"(?P<more>(?:,[A-Za-z]+=[^,]+)*)"
_CLIENT_FIRST = re.compile(
    r"n,(?:a=(?P<wanted>[^,]+))?,(?P<bare>n=(?P<name>[^,]+)," + _NONCE + _MORE + ")",
    re.DOTALL,
)
_CLIENT_FINAL = re.compile(
    "(?P<signed>c=(?P<binding>[A-Za-z0-9/+=]+),"
    + _NONCE
    + _MORE
    + "),p=(?P<proof>[A-Za-z0-9/+=]+)",
    re.DOTALL,
)


class ScramServer(SaslServer):
    """RFC 5802 and 7677, without channel binding; with Kafka's extension for delegation tokens.

    The extension marks the name as a token's id. Clients that do not support it (librdkafka) send
    the id as a user's name: it is a token's id if no such user exists.
    """

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], ScramKeys | None],
        find_token: Callable[[str], TokenLogin | None] = lambda token_id: None,
    ) -> None:
        """``find(user)`` returns the credential of a user, None if there is no user;
        ``find_token(id)`` that of a currently valid token.
        """
        self.mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._find = find
        self._find_token = find_token
        self._keys: ScramKeys | None = None
        self._auth_message = ""
        self._nonce = ""
        self._binding = ""
        self._user = ""

    @property
    def begun(self) -> bool:
        """Whether the user has been looked up."""
        return self._keys is not None

    @staticmethod
    def name_in(message: bytes) -> str:
        """The name in a first message; "" if it is malformed."""
        match = _CLIENT_FIRST.fullmatch(message.decode("utf-8", "replace"))
        return "" if match is None else match["name"]

    def step(self, token: bytes) -> bytes:
        """The first message has the name, the second the proof."""
        text = token.decode("utf-8", "replace")
        return self._begin(text) if self._keys is None else self._end(text, self._keys)

    def _begin(self, text: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise SaslRefusedError("its first SCRAM message is malformed")
        name = _plain_name(match["name"])
        keys = self._found(name, is_token=_is_token(match["more"]))
        if match["wanted"] is not None:
            _same(_plain_name(match["wanted"]), name)
        if keys.iterations < MIN_ITERATIONS:
            raise SaslRefusedError(f"the credential of user {name!r} has too few iterations")
        self._keys = keys
        # The last message repeats, signed, what was before the name in the first one.
        self._binding = base64.b64encode(text[: match.start("bare")].encode()).decode()
        self._nonce = match["nonce"] + secrets.token_urlsafe(24)
        salt = base64.b64encode(keys.salt).decode()
        answer = f"r={self._nonce},s={salt},i={keys.iterations}"
        self._auth_message = f"{match['bare']},{answer}"
        return answer.encode()

    def _found(self, name: str, *, is_token: bool) -> ScramKeys:
        """The credential of the user or token. Raises SaslRefusedError."""
        is_short = len(name) <= MAX_NAME_BYTES
        keys = self._find(name) if is_short and not is_token else None
        if keys is not None:
            self._user = name
            self.claim = Claim(name, keys.stored_key, is_token=False)
            return keys
        token = self._find_token(name) if is_short else None
        if token is None:
            what = (
                "is not a valid delegation token"
                if is_token
                else f"has no {self.mechanism} credential"
            )
            raise SaslRefusedError(f"{'' if is_token else 'user '}{name[:100]!r} {what}")
        self._user, self.expires_at_ms = token.owner, token.expires_at_ms
        self.claim = Claim(name, token.keys.stored_key, is_token=True)
        return token.keys

    def _end(self, text: str, keys: ScramKeys) -> bytes:
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None or not hmac.compare_digest(match["nonce"], self._nonce):
            raise SaslRefusedError("its last SCRAM message does not fit its first")
        if match["binding"] != self._binding:
            raise SaslRefusedError("its last SCRAM message binds another channel than its first")
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error:
            proof = b""
        signed = f"{self._auth_message},{match['signed']}".encode()
        signature = hmac.digest(keys.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise SaslRefusedError(f"user {self._user!r} sent no proof")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        shown = hashlib.new(self._hash, client_key).digest()
        if not hmac.compare_digest(shown, keys.stored_key):
            raise SaslRefusedError(f"user {self._user!r}: wrong password")
        self.user = self._user
        self.done = True
        return b"v=" + base64.b64encode(hmac.digest(keys.server_key, signed, self._hash))


_BEARER = re.compile(
    r"n,(?:a=(?P<wanted>[^,]+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)+)\x01"
)
_AUTH = re.compile(r"(?P<scheme>[A-Za-z0-9]+) +(?P<token>[-_\.~+/a-zA-Z0-9]+=*)")


class OAuthBearerServer(SaslServer):
    """RFC 7628: a token of an issuer that the broker trusts."""

    mechanism = "OAUTHBEARER"

    def __init__(self, check: Callable[[str], BearerToken]) -> None:
        """``check(token)`` returns the token's bearer; raises TokenRefusedError if it is not
        valid.
        """
        self._check = check
        self._refusal: SaslRefusedError | None = None

    def step(self, token: bytes) -> bytes:
        """The token; after a refusal, only the message that ends the exchange."""
        if self._refusal is not None and token == b"\x01":
            raise self._refusal
        match = _BEARER.fullmatch(token.decode("utf-8", "replace"))
        pairs = [] if match is None else match["pairs"][:-1].split("\x01")
        shown = dict(pair.split("=", 1) for pair in pairs)
        found = _AUTH.fullmatch(shown.get("auth", ""))
        if match is None or found is None or found["scheme"].lower() != "bearer":
            raise SaslRefusedError("its OAUTHBEARER message is malformed")
        try:
            bearer = self._check(found["token"])
        except TokenRefusedError as problem:
            client_message = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
            self._refusal = SaslRefusedError(str(problem), client_message)
            return client_message.encode()
        if match["wanted"] is not None and match["wanted"] != bearer.user:
            raise SaslRefusedError(
                f"user {bearer.user!r} asks to act as another",
                f"Authentication failed: Client requested an authorization id ({match['wanted']}) "
                f"that is different from the token's principal name ({bearer.user})",
            )
        self.user, self.expires_at_ms = bearer.user, bearer.expires_at_ms
        self.done = True
        return b""


def _failed(client_message: str, why: str = "") -> SaslRefusedError:
    return SaslRefusedError(why or client_message, f"Authentication failed: {client_message}")


def _same(wanted: str, user: str) -> None:
    """A client may name an authorization id: only its own."""
    if wanted and wanted != user:
        raise _failed(
            "Client requested an authorization id that is different from username",
            f"user {user!r} asks to act as another",
        )


def _is_token(extensions: str) -> bool:
    """Whether the extensions of SCRAM's first message mark the name as a token's id."""
    given = dict(each.split("=", 1) for each in extensions.split(",") if each)
    return given.get("tokenauth", "").lower() == "true"


def _plain_name(name: str) -> str:
    """A name in SCRAM's format: =2C is a comma, =3D an equals sign; no other escapes."""
    if re.search(r"=(?!2C|3D)", name):
        raise SaslRefusedError("its SCRAM message has a name that is not escaped")
    return name.replace("=2C", ",").replace("=3D", "=")
