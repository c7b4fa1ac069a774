"""Validates bearer tokens: JWTs that are signed by a key of the listener's JWK set, issued for this
broker, and not expired. The set is in a file or fetched over HTTP(S). It is read again
periodically.

`check` may wait for the network: call it in a thread. No message contains a token.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from kstore.config import ConfigError
from kstore.net.sasl_server import MAX_NAME_BYTES, BearerToken, TokenRefusedError

__all__ = ["BearerTokens"]

URL = "sasl.oauthbearer.jwks.endpoint.url"
FETCH_TIMEOUT_S = 10.0
MAX_SET_BYTES = 1024 * 1024
UNKNOWN_KEY_PAUSE_S = 10.0
"""A token with an unknown key causes another read of the set, but not more often than this."""
ALGORITHMS = {
    "RSA": ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
    "EC": ["ES256", "ES384", "ES512"],
    "OKP": ["EdDSA"],
}
"""The algorithms of each type of key. All use public keys: a key that anyone can read is not enough
to sign.
"""


class BearerTokens:
    """The tokens that one listener trusts. Raises ConfigError for invalid settings."""

    def __init__(
        self, settings: Mapping[str, Any], listener: str, report: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._report = report
        self._url: str = settings[URL] or ""
        self._keys: list[Any] = []
        self._lock = threading.Lock()
        self._read_at = -1e9
        self._next_at = 0.0
        self._failures = 0
        self._check_settings()
        self._jwt = _library()
        if self._url.lower().startswith("file:"):
            self._keys = self._fetch()
            self._plan(failed=False)

    def close(self) -> None:
        """Does nothing: there is nothing to stop."""

    def check(self, token: str) -> BearerToken:
        """The owner of a token, and its expiry time. Raises TokenRefusedError."""
        settings, jwt = self._settings, self._jwt
        try:
            header = jwt.get_unverified_header(token)
            key = self._key_of(header)
            claims = jwt.decode(
                token,
                key.key,
                algorithms=ALGORITHMS[key.key_type],
                audience=list(settings["sasl.oauthbearer.expected.audience"]) or None,
                issuer=settings["sasl.oauthbearer.expected.issuer"] or None,
                leeway=settings["sasl.oauthbearer.clock.skew.seconds"],
                options={
                    "require": ["exp", "iat"],
                    "verify_aud": bool(settings["sasl.oauthbearer.expected.audience"]),
                    "verify_sub": False,
                },
            )
        except jwt.PyJWTError as problem:
            raise TokenRefusedError(f"its token is not valid: {problem}") from None
        name = settings["sasl.oauthbearer.sub.claim.name"]
        user = claims.get(name)
        if not isinstance(user, str) or not user.strip() or len(user) > MAX_NAME_BYTES:
            raise TokenRefusedError(f"its token names no principal (claim {name})")
        _check_scopes(claims.get(settings["sasl.oauthbearer.scope.claim.name"]))
        return BearerToken(user, int(claims["exp"] * 1000))

    # ---- keys ----

    def _key_of(self, header: Mapping[str, Any]) -> Any:
        """The key that a token names."""
        now = time.monotonic()
        with self._lock:
            if now >= self._next_at:
                self._read_anew()
            found = self._find(header)
            if found is None and now >= self._read_at + UNKNOWN_KEY_PAUSE_S:
                self._read_anew()
                found = self._find(header)
        if found is None:
            raise TokenRefusedError("its token is signed by a key that is not in the JWK set")
        return found

    def _find(self, header: Mapping[str, Any]) -> Any:
        wanted, algorithm = header.get("kid"), header.get("alg")
        for key in self._keys:
            fits = algorithm in ALGORITHMS.get(key.key_type, ())
            if fits and (wanted is None or key.key_id == wanted):
                return key
        return None

    def _read_anew(self) -> None:
        try:
            self._keys = self._fetch()
        except ConfigError as problem:
            self._report(f"the previous keys stay in use: {problem}")
            self._plan(failed=True)
        else:
            self._plan(failed=False)

    def _plan(self, *, failed: bool) -> None:
        """When the set is read next."""
        self._read_at = time.monotonic()
        pause_ms: int = self._settings["sasl.oauthbearer.jwks.endpoint.refresh.ms"]
        self._failures = self._failures + 1 if failed else 0
        if failed:
            first = self._settings["sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"]
            longest = self._settings["sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"]
            pause_ms = min(first * 2 ** min(self._failures - 1, 30), longest)
        self._next_at = self._read_at + pause_ms / 1000

    def _fetch(self) -> list[Any]:
        """The keys of the set. Raises ConfigError if it cannot be read."""
        try:
            with _opener().open(self._url, timeout=FETCH_TIMEOUT_S) as answer:
                data = answer.read(MAX_SET_BYTES + 1)
            rows = json.loads(data[:MAX_SET_BYTES])["keys"]
        except (OSError, urllib.error.URLError, ValueError, KeyError, TypeError) as problem:
            reason = getattr(problem, "reason", None) or problem
            raise ConfigError(
                f"{URL} of listener {self._listener} is {self._url}, but no JWK set could be read "
                f"from it: {reason}",
                key=URL,
            ) from None
        found = []
        for row in rows:
            if row.get("kty") in ALGORITHMS and row.get("use", "sig") == "sig":
                try:
                    found.append(self._jwt.PyJWK(row))
                except self._jwt.PyJWTError:
                    continue  # the library cannot use this key; others may be usable
        return found

    def _check_settings(self) -> None:
        if self._url.lower().partition(":")[0] not in {"file", "http", "https"}:
            raise ConfigError(
                f"{URL} of listener {self._listener} is {self._url or 'not set'}; OAUTHBEARER needs"
                " the URL (file:, https: or http:) of the JWK set that verifies tokens",
                key=URL,
            )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the operator decides whose keys are trusted, not a response from the
    network.
    """

    def redirect_request(
        self, req: object, fp: object, code: int, msg: str, headers: object, newurl: str
    ) -> None:
        raise urllib.error.URLError(
            f"it redirects to {newurl[:200]!r}, which is not followed: set the URL of the keys"
        )


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_NoRedirects)


def _library() -> Any:
    try:
        import jwt
        import jwt.algorithms
    except ImportError:
        jwt = None  # type: ignore[assignment]
    if jwt is None or not jwt.algorithms.has_crypto:
        raise ConfigError(
            "OAUTHBEARER on a listener needs a library: pip install 'kstore[sasl]'",
            key="sasl.enabled.mechanisms",
        )
    return jwt


def _check_scopes(scopes: object) -> None:
    """Check that scopes are text."""
    every = scopes if isinstance(scopes, list) else [scopes] if isinstance(scopes, str) else []
    if any(not isinstance(each, str) or not each.strip() for each in every):
        raise TokenRefusedError("its token has an empty scope")
