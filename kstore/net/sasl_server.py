"""SASL from the accepting side: the mechanisms PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER
as bytes in and bytes out.

It opens no connection and knows no store: who the users are, and which tokens hold, is asked of
functions that it is given. Names and passwords are taken as they are (UTF-8, no SASLprep), as Kafka
takes them. What clients are told of a failure are Kafka's words; nothing of a password or a token
is in any message.
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
"""Longer names and tokens' subjects are nobody's, and would be kept and written to logs."""


class SaslRefusedError(Exception):
    """The client has not shown who it is. The message is for the operator; ``told`` for the client,
    None: only that its credentials are invalid.
    """

    def __init__(self, message: str, told: str | None = None) -> None:
        super().__init__(message)
        self.told = told


class TokenRefusedError(Exception):
    """A token does not hold; the message says why, to the operator alone."""


class BearerToken(NamedTuple):
    """What a token that holds says."""

    user: str
    expires_at_ms: int


class ScramKeys(Protocol):
    """What is kept of a user's SCRAM password (RFC 5802)."""

    @property
    def salt(self) -> bytes: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...


class TokenLogin(NamedTuple):
    """What SCRAM needs of a delegation token (KIP-48)."""

    owner: str
    """As whom its bearer acts."""
    expires_at_ms: int
    keys: ScramKeys


class Claim(NamedTuple):
    """By what a client has logged in, or is about to, with SCRAM."""

    name: str
    """The user, or the id of a token."""
    stored_key: bytes
    is_token: bool


class SaslServer(ABC):
    """One authentication, step by step."""

    mechanism: str
    done = False
    """Whether the client has shown who it is: ``user``."""
    user = ""
    expires_at_ms: int | None = None
    """When what it has shown ends, in milliseconds since 1970."""
    claim: Claim | None = None
    """With SCRAM, once the user is found."""

    @abstractmethod
    def step(self, token: bytes) -> bytes:
        """The answer to the client's next message. Raises SaslRefusedError."""


class PlainServer(SaslServer):
    """RFC 4616."""

    mechanism = "PLAIN"

    def __init__(self, check: Callable[[str, str], bool]) -> None:
        """``check(user, password)`` says whether that is a user's password."""
        self._check = check

    def step(self, token: bytes) -> bytes:
        """The one message: whom to act as, user, password."""
        parts = token.decode("utf-8", "replace").split("\0")
        if len(parts) != 3:
            told = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            raise SaslRefusedError(told, told)
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

    The extension says that the name is a token's id. Clients that do not know it (librdkafka) give
    the id as a user's name: it is a token's if there is no such user.
    """

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], ScramKeys | None],
        find_token: Callable[[str], TokenLogin | None] = lambda token_id: None,
    ) -> None:
        """``find(user)`` gives what is kept of a user's password, None where there is no user;
        ``find_token(id)`` the same of a token that is valid now.
        """
        self.mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._find = find
        self._find_token = find_token
        self._keys: ScramKeys | None = None
        self._said = ""
        self._nonce = ""
        self._binding = ""
        self._user = ""

    @property
    def begun(self) -> bool:
        """Whether the user has been looked for."""
        return self._keys is not None

    @staticmethod
    def name_in(message: bytes) -> str:
        """The name that a first message gives; "" where it has not the form of one."""
        match = _CLIENT_FIRST.fullmatch(message.decode("utf-8", "replace"))
        return "" if match is None else match["name"]

    def step(self, token: bytes) -> bytes:
        """The first message says who, the second proves it."""
        text = token.decode("utf-8", "replace")
        return self._begin(text) if self._keys is None else self._end(text, self._keys)

    def _begin(self, text: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise SaslRefusedError("its first SCRAM message has not the form of one")
        name = _plain_name(match["name"])
        keys = self._found(name, is_token=_says_token(match["more"]))
        if match["wanted"] is not None:
            _same(_plain_name(match["wanted"]), name)
        if keys.iterations < MIN_ITERATIONS:
            raise SaslRefusedError(f"the credential of user {name!r} has too few iterations")
        self._keys = keys
        # What the client said before its name comes again in its last message, signed.
        self._binding = base64.b64encode(text[: match.start("bare")].encode()).decode()
        self._nonce = match["nonce"] + secrets.token_urlsafe(24)
        salt = base64.b64encode(keys.salt).decode()
        answer = f"r={self._nonce},s={salt},i={keys.iterations}"
        self._said = f"{match['bare']},{answer}"
        return answer.encode()

    def _found(self, name: str, *, is_token: bool) -> ScramKeys:
        """What is known of the user or token; SaslRefusedError."""
        is_short = len(name) <= MAX_NAME_BYTES
        keys = self._find(name) if is_short and not is_token else None
        if keys is not None:
            self._user = name
            self.claim = Claim(name, keys.stored_key, is_token=False)
            return keys
        token = self._find_token(name) if is_short else None
        if token is None:
            what = (
                "is no valid delegation token"
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
        signed = f"{self._said},{match['signed']}".encode()
        signature = hmac.digest(keys.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise SaslRefusedError(f"user {self._user!r} shows no proof")
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
    """RFC 7628: a token of somebody that the broker trusts."""

    mechanism = "OAUTHBEARER"

    def __init__(self, check: Callable[[str], BearerToken]) -> None:
        """``check(token)`` says whose a token is; TokenRefusedError where it does not hold."""
        self._check = check
        self._refusal: SaslRefusedError | None = None

    def step(self, token: bytes) -> bytes:
        """The token; after a refusal only what ends the exchange."""
        if self._refusal is not None and token == b"\x01":
            raise self._refusal
        match = _BEARER.fullmatch(token.decode("utf-8", "replace"))
        pairs = [] if match is None else match["pairs"][:-1].split("\x01")
        shown = dict(pair.split("=", 1) for pair in pairs)
        found = _AUTH.fullmatch(shown.get("auth", ""))
        if match is None or found is None or found["scheme"].lower() != "bearer":
            raise SaslRefusedError("its OAUTHBEARER message has not the form of one")
        try:
            bearer = self._check(found["token"])
        except TokenRefusedError as problem:
            told = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
            self._refusal = SaslRefusedError(str(problem), told)
            return told.encode()
        if match["wanted"] is not None and match["wanted"] != bearer.user:
            raise SaslRefusedError(
                f"user {bearer.user!r} asks to be another",
                f"Authentication failed: Client requested an authorization id ({match['wanted']}) "
                f"that is different from the token's principal name ({bearer.user})",
            )
        self.user, self.expires_at_ms = bearer.user, bearer.expires_at_ms
        self.done = True
        return b""


def _failed(told: str, why: str = "") -> SaslRefusedError:
    return SaslRefusedError(why or told, f"Authentication failed: {told}")


def _same(wanted: str, user: str) -> None:
    """A client may say as whom it wants to act: only as itself."""
    if wanted and wanted != user:
        raise _failed(
            "Client requested an authorization id that is different from username",
            f"user {user!r} asks to be another",
        )


def _says_token(extensions: str) -> bool:
    """Whether the extensions of SCRAM's first message say that the name is a token's id."""
    given = dict(each.split("=", 1) for each in extensions.split(",") if each)
    return given.get("tokenauth", "").lower() == "true"


def _plain_name(name: str) -> str:
    """A name as SCRAM writes it: =2C is a comma, =3D an equals sign; nothing else is escaped."""
    if re.search(r"=(?!2C|3D)", name):
        raise SaslRefusedError("its SCRAM message has a name that is not escaped")
    return name.replace("=2C", ",").replace("=3D", "=")
