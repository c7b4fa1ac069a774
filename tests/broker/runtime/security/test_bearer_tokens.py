"""broker/runtime/security/bearer_tokens.py: keys that change or cannot be fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from kstore.broker.runtime.security import bearer_tokens
from kstore.broker.runtime.security.bearer_tokens import BearerTokens
from kstore.config import ConfigError
from kstore.config.sasl_configs import SASL_CONFIGS
from kstore.net.sasl_server import TokenRefusedError
from tests.beside.http_answers import HttpAnswers, HttpRequest, Reply
from tests.broker.runtime.security.sasl_harness import Signer


class Endpoint(HttpAnswers):
    """An HTTP server that returns what a test sets; None: an error."""

    def __init__(self) -> None:
        super().__init__("/jwks")
        self.said: bytes | None = b"{}"
        self.asked = 0
        self.redirect: str | None = None

    def answer(self, asked: HttpRequest) -> Reply:
        self.asked += 1
        if self.redirect is not None and asked.path == "/jwks":
            return Reply(302, headers={"Location": self.redirect})
        return Reply(500) if self.said is None else Reply(200, self.said)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as made:
        yield made


@pytest.fixture(scope="module")
def signers(tmp_path_factory: pytest.TempPathFactory) -> list[Signer]:
    return [Signer(tmp_path_factory.mktemp("signer")) for _ in range(2)]


def trusted(url: str, **more: Any) -> tuple[BearerTokens, list[str]]:
    told: list[str] = []
    settings = {row.name: row.default for row in SASL_CONFIGS}
    settings["sasl.oauthbearer.jwks.endpoint.url"] = url
    settings |= {f"sasl.oauthbearer.{name.replace('_', '.')}": v for name, v in more.items()}
    return BearerTokens(settings, "L", told.append), told


@pytest.mark.slow
def test_keys_that_change_are_read_anew(
    endpoint: Endpoint, signers: list[Signer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bearer_tokens, "UNKNOWN_KEY_PAUSE_S", 0.0)
    first, second = signers
    endpoint.said = first.path.read_bytes()
    tokens, _ = trusted(endpoint.url)
    assert tokens.check(first.token("alice")).user == "alice"
    assert tokens.check(first.token("bob")).user == "bob"
    assert endpoint.asked == 1
    endpoint.said = second.path.read_bytes().replace(b'"k1"', b'"k2"')
    foreign = second.token("carol", kid="k2")
    assert tokens.check(foreign).user == "carol"
    assert endpoint.asked == 2


def test_an_endpoint_that_is_down_is_asked_again_later(
    endpoint: Endpoint, signers: list[Signer]
) -> None:
    endpoint.said = None
    tokens, told = trusted(endpoint.url, jwks_endpoint_retry_backoff_ms=1)
    with pytest.raises(TokenRefusedError, match="not in the JWK set"):
        tokens.check(signers[0].token("alice"))
    assert "no JWK set could be read" in told[0]
    endpoint.said = signers[0].path.read_bytes()
    for _ in range(100):
        try:
            assert tokens.check(signers[0].token("alice")).user == "alice"
            break
        except TokenRefusedError:
            continue
    else:
        raise AssertionError("the keys were never read again")


def test_a_redirect_is_not_followed(endpoint: Endpoint, signers: list[Signer]) -> None:
    endpoint.said = signers[0].path.read_bytes()
    for target in (endpoint.url.replace("/jwks", "/elsewhere"), "ftp://127.0.0.1:1/jwks"):
        endpoint.redirect, endpoint.asked = target, 0
        tokens, told = trusted(endpoint.url)
        with pytest.raises(TokenRefusedError, match="not in the JWK set"):
            tokens.check(signers[0].token("alice"))
        assert endpoint.asked == 1
        assert "redirects to" in told[0]


def test_a_symmetric_key_signs_nothing(tmp_path: Path) -> None:
    """A user who can read the key set could sign with it."""
    path = tmp_path / "jwks"
    path.write_text(json.dumps({"keys": [{"kty": "oct", "kid": "k", "k": "c2VjcmV0" * 8}]}))
    tokens, _ = trusted(path.as_uri())
    forged = jwt.encode(
        {"sub": "a", "iat": 1, "exp": 1e10}, "secret" * 8, "HS256", headers={"kid": "k"}
    )
    with pytest.raises(TokenRefusedError):
        tokens.check(forged)


def test_a_public_key_is_no_secret(signers: list[Signer]) -> None:
    """The known confusion of algorithms: a token that is signed with the text of the public key as
    a password.
    """
    tokens, _ = trusted(signers[0].path.as_uri())
    head = jwt.utils.base64url_encode(b'{"alg":"HS256","kid":"k1"}').decode()
    body = jwt.utils.base64url_encode(b'{"sub":"a","iat":1,"exp":9999999999}').decode()
    with pytest.raises(TokenRefusedError):
        tokens.check(f"{head}.{body}.AAAA")


@pytest.mark.parametrize("url", [None, "", "/etc/keys", "ftp://a/b", "file:///nowhere"])
def test_a_url_that_can_not_be_is_refused(url: str | None) -> None:
    with pytest.raises(ConfigError, match=r"jwks\.endpoint\.url"):
        trusted(url)  # type: ignore[arg-type]


def test_claims_have_the_names_that_are_set(signers: list[Signer]) -> None:
    tokens, _ = trusted(signers[0].path.as_uri(), sub_claim_name="client", scope_claim_name="may")
    assert tokens.check(signers[0].token("x", client="app", may=["read"])).user == "app"
    with pytest.raises(TokenRefusedError, match="names no principal"):
        tokens.check(signers[0].token("x"))
    with pytest.raises(TokenRefusedError, match="scope"):
        tokens.check(signers[0].token("x", client="app", may=["read", ""]))
