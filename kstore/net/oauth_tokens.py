"""The sources of OAUTHBEARER tokens: a callable, a file, a token endpoint (with client credentials
or an assertion) or, for tests, tokens without a signature.

All functions block, and are called in a thread (sasl_login.py). No token is kept here, and no
message contains a token or a secret.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kstore.config.client.sasl_configs import RETRIEVERS
from kstore.config.definition import ConfigError
from kstore.errors import KafkaError, NetworkError, SaslAuthenticationFailedError
from kstore.net.sasl_client import Token, jaas_entry

__all__ = ["claims_of", "token_source"]

URL = "sasl.oauthbearer.token.endpoint.url"
HANDLER = "sasl.login.callback.handler.class"
KAFKA_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
CREDENTIALS = "sasl.oauthbearer.client.credentials.client."
ASSERTION = "sasl.oauthbearer.assertion."
GRANT_JWT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TIMEOUT_MS = 10_000
MAX_ANSWER_BYTES = 1024 * 1024
UNSECURED = "unsecuredLogin"
_HINT = (
    f"set {URL} to a token endpoint or to a file (file:///path), or {HANDLER} to a function that "
    "returns a token"
)


def token_source(settings: Mapping[str, Any]) -> Callable[[], Token]:
    """The function that gets a token, by the settings. Raises ConfigError if they are incomplete.

    The function raises NetworkError if a retry may help, otherwise SaslAuthenticationFailedError.
    """
    handler, url = settings.get(HANDLER), settings.get(URL)
    options = jaas_entry(settings).options
    if callable(handler):
        return lambda: _called(handler)
    if handler not in (None, KAFKA_HANDLER):
        raise ConfigError(f"{HANDLER} names a class of Java; {_HINT}", key=HANDLER)
    if not url:
        if any(name.startswith(UNSECURED) for name in options):
            return lambda: _unsecured(options)
        raise ConfigError(f"sasl.mechanism OAUTHBEARER needs tokens: {_HINT}", key=URL)
    parts = urllib.parse.urlsplit(url)
    kind = RETRIEVERS[settings["sasl.oauthbearer.jwt.retriever.class"]]
    if kind == "default":
        kind = "file" if parts.scheme == "file" else "client-credentials"
    if kind == "file":
        if parts.scheme != "file":
            raise ConfigError(f"{URL} is {url!r}; it must be a file: file:///path", key=URL)
        path = Path(urllib.parse.unquote(parts.path))
        return lambda: _from_file(path, URL)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"{URL} is {url!r}; it must be https://host/path, or http", key=URL)
    endpoint = _Endpoint(settings, parts, options)
    if kind == "jwt-bearer":
        return lambda: endpoint.ask({"grant_type": GRANT_JWT, "assertion": _assertion(settings)})
    endpoint.use_credentials(settings, options)
    return lambda: endpoint.ask({"grant_type": "client_credentials"})


def claims_of(text: str) -> dict[str, Any] | None:
    """The payload of a JWT, without a check of the signature; None if it is not a JWT."""
    parts = text.split(".")
    if len(parts) != 3:
        return None
    try:
        payload = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return None
    return payload if isinstance(payload, dict) else None


def _token(text: str, lifetime_s: object, source: str) -> Token:
    """The token with its expiry time, which a JWT contains. Raises SaslAuthenticationFailedError if
    it is not a token, or has expired.
    """
    text = text.strip()
    if not text or not text.isascii() or any(ord(char) <= 32 for char in text):
        raise SaslAuthenticationFailedError(
            f"{source} returned no token, but {len(text)} characters"
        )
    ends = (claims_of(text) or {}).get("exp")
    if not isinstance(ends, (int, float)):
        ends = time.time() + lifetime_s if isinstance(lifetime_s, (int, float)) else None
    if ends is not None and ends <= time.time():
        ago_s = time.time() - ends
        raise SaslAuthenticationFailedError(f"the token from {source} expired {ago_s:.0f} s ago")
    return Token(text, ends)


# ---- a callable ----


def _called(handler: Callable[..., Any]) -> Token:
    """The result of a user's function: text, or (text, expiry), or librdkafka's (text, expiry,
    principal, extensions).
    """
    try:
        found = handler()
    except KafkaError:  # NetworkError means that a retry may help
        raise
    except Exception as error:
        raise SaslAuthenticationFailedError(
            f"{HANDLER} raised {type(error).__name__}: {error}"
        ) from error
    if isinstance(found, Token):
        return found
    if isinstance(found, str):
        return _token(found, None, HANDLER)
    if isinstance(found, tuple) and len(found) >= 2 and isinstance(found[0], str):
        extensions = found[3] if len(found) > 3 and found[3] else {}
        made = _token(found[0], found[1] - time.time(), HANDLER)
        return made._replace(extensions=dict(extensions))
    raise SaslAuthenticationFailedError(
        f"{HANDLER} must return a token as text, or (token, expiry in seconds since 1970); "
        f"it returned {type(found).__name__}"
    )


# ---- a file ----


def _from_file(path: Path, key: str) -> Token:
    return _token(_read(path, key), None, str(path))


def _read(path: Path, key: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise SaslAuthenticationFailedError(f"{key}: cannot read {path}: {reason}") from None


# ---- a token endpoint ----


class _Endpoint:
    """One POST without redirects, which would send the secret to another host."""

    def __init__(
        self, settings: Mapping[str, Any], url: urllib.parse.SplitResult, options: Mapping[str, str]
    ) -> None:
        self._url = url
        self._name = f"{url.scheme}://{url.hostname}{url.path}"
        self._scope = settings.get("sasl.oauthbearer.scope") or options.get("scope")
        self._connect_s = (settings.get("sasl.login.connect.timeout.ms") or TIMEOUT_MS) / 1000
        self._read_s = (settings.get("sasl.login.read.timeout.ms") or TIMEOUT_MS) / 1000
        self._first_s = settings["sasl.login.retry.backoff.ms"] / 1000
        self._longest_s = settings["sasl.login.retry.backoff.max.ms"] / 1000
        self._headers = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
            "Connection": "close",
        }
        self._tls: Any = None
        if url.scheme == "https":
            from kstore.net.tls import client_context

            own = {name: value for name, value in options.items() if name.startswith("ssl.")}
            self._tls = client_context({**settings, **own})

    def use_credentials(self, settings: Mapping[str, Any], options: Mapping[str, str]) -> None:
        """Authenticates with id and secret. Raises ConfigError if there are none."""
        name = settings.get(f"{CREDENTIALS}id") or options.get("clientId")
        secret = settings.get(f"{CREDENTIALS}secret") or options.get("clientSecret")
        if not name or not secret:
            missing = f"{CREDENTIALS}{'secret' if name else 'id'}"
            raise ConfigError(f"the token endpoint {self._name} needs {missing}", key=missing)
        if settings["sasl.oauthbearer.header.urlencode"]:
            name, secret = urllib.parse.quote_plus(name), urllib.parse.quote_plus(secret)
        both = base64.b64encode(f"{name}:{secret}".encode()).decode()
        self._headers["Authorization"] = f"Basic {both}"

    def ask(self, form: dict[str, str]) -> Token:
        """Request a token; retries for sasl.login.retry.backoff.max.ms if that may help."""
        if self._scope:
            form["scope"] = self._scope
        body = urllib.parse.urlencode(form).encode()
        deadline = time.monotonic() + self._longest_s
        pause_s = self._first_s
        while True:
            try:
                return self._ask_once(body)
            except NetworkError:
                if time.monotonic() + pause_s >= deadline:
                    raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, self._longest_s) or self._first_s

    def _ask_once(self, body: bytes) -> Token:
        connection = self._connection()
        try:
            connection.connect()
            connection.sock.settimeout(self._read_s)
            path = urllib.parse.urlunsplit(("", "", self._url.path or "/", self._url.query, ""))
            connection.request("POST", path, body, self._headers)
            answer = connection.getresponse()
            text = answer.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or error
            raise NetworkError(f"no token from {self._name}: {reason}") from error
        finally:
            connection.close()
        found = _json_object(text)
        if answer.status >= 500 or answer.status in {408, 429}:
            raise NetworkError(f"no token from {self._name}: it answered {answer.status}")
        if answer.status != 200:
            response = " ".join(str(found[k]) for k in ("error", "error_description") if k in found)
            raise SaslAuthenticationFailedError(
                f"{self._name} refused to issue a token: {answer.status} {response[:200]}".rstrip()
            )
        text_of_token = found.get("access_token") or found.get("id_token") or ""
        return _token(str(text_of_token), found.get("expires_in"), self._name)

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=self._connect_s)
        return http.client.HTTPSConnection(host, port, timeout=self._connect_s, context=self._tls)


def _json_object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _assertion(settings: Mapping[str, Any]) -> str:
    """The assertion of a file, or one created here and signed with a key."""
    given = settings.get(f"{ASSERTION}file")
    if given:
        return _read(Path(given), f"{ASSERTION}file").strip()
    key_file = settings.get(f"{ASSERTION}private.key.file")
    if not key_file:
        raise SaslAuthenticationFailedError(
            f"JwtBearerJwtRetriever needs {ASSERTION}file, or {ASSERTION}private.key.file"
        )
    header: dict[str, Any] = {}
    payload: dict[str, Any] = {}
    template = settings.get(f"{ASSERTION}template.file")
    if template:
        known = _json_object(_read(Path(template), f"{ASSERTION}template.file").encode())
        header, payload = known.get("header", {}), known.get("payload", {})
    now = int(time.time())
    payload |= {
        "iat": now,
        "exp": now + settings[f"{ASSERTION}claim.exp.seconds"],
        "nbf": now - settings[f"{ASSERTION}claim.nbf.seconds"],
    }
    for name in ("aud", "iss", "sub"):
        if settings.get(f"{ASSERTION}claim.{name}"):
            payload[name] = settings[f"{ASSERTION}claim.{name}"]
    if settings[f"{ASSERTION}claim.jti.include"]:
        import uuid

        payload["jti"] = str(uuid.uuid4())
    key = _read(Path(key_file), f"{ASSERTION}private.key.file")
    return _signed(header, payload, key, settings)


def _signed(
    header: dict[str, Any], payload: dict[str, Any], key: str, settings: Mapping[str, Any]
) -> str:
    try:
        import jwt
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise SaslAuthenticationFailedError(
            "signing an assertion needs PyJWT: pip install 'kstore[sasl]'"
        ) from None
    passphrase = settings.get(f"{ASSERTION}private.key.passphrase")
    algorithm = settings[f"{ASSERTION}algorithm"].upper()
    try:
        loaded: Any = load_pem_private_key(key.encode(), passphrase and passphrase.encode())
        return jwt.encode(payload, loaded, algorithm=algorithm, headers=header)
    except (ValueError, TypeError, jwt.PyJWTError) as error:
        raise SaslAuthenticationFailedError(
            f"{ASSERTION}private.key.file can't sign with {algorithm}: {error}"
        ) from None


# ---- without a signature ----


def _unsecured(options: Mapping[str, str]) -> Token:
    """A token without a signature, with Kafka's unsecuredLogin... options: only for tests, and for
    brokers that accept such tokens.
    """
    now = time.time()
    claims: dict[str, Any] = {}
    for name, value in options.items():
        if name.startswith(f"{UNSECURED}StringClaim_"):
            claims[name.partition("_")[2]] = value
        elif name.startswith(f"{UNSECURED}NumberClaim_"):
            claims[name.partition("_")[2]] = float(value)
        elif name.startswith(f"{UNSECURED}ListClaim_"):
            separator, items = value[:1], value[1:]
            claims[name.partition("_")[2]] = items.split(separator) if separator else []
    ends = now + float(options.get(f"{UNSECURED}LifetimeSeconds", 3600))
    claims |= {"iat": now, "exp": ends}
    parts = ({"alg": "none"}, claims)
    coded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
    prefix = f"{UNSECURED}Extension_"
    extensions = {k.removeprefix(prefix): v for k, v in options.items() if k.startswith(prefix)}
    return Token(".".join(text.rstrip("=") for text in coded) + ".", ends, extensions)
