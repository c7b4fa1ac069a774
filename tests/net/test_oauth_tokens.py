"""The sources of OAUTHBEARER's tokens, and when new ones are fetched."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from kstore.config import ConfigError
from kstore.config.client.configs import client_settings
from kstore.config.client.sasl_configs import RETRIEVERS
from kstore.errors import NetworkError, SaslAuthenticationFailedError
from kstore.net.oauth_tokens import claims_of, token_source
from kstore.net.sasl_client import Token
from kstore.net.sasl_login import Login
from tests.beside.http_answers import HttpAnswers, HttpRequest, Reply

SECRET = "never-to-be-told"
CLASSES = {name: text for text, name in RETRIEVERS.items()}


def settings(**more: Any) -> dict[str, Any]:
    given = {name.replace("_", "."): value for name, value in more.items()}
    fixed = {"sasl.mechanism": "OAUTHBEARER", "security.protocol": "SASL_PLAINTEXT"}
    return client_settings("admin", fixed | given)


def made(seconds: float = 3600, **claims: Any) -> str:
    """A token; its signature is not checked here."""
    return jwt.encode({"exp": time.time() + seconds, "sub": "me"} | claims, "k" * 32, "HS256")


class Endpoint(HttpAnswers):
    """A token endpoint that answers what the test has put there."""

    def __init__(self) -> None:
        super().__init__("/token?realm=x")
        self.answers: list[tuple[int, Any]] = []
        self.asked: list[tuple[dict[str, str], dict[str, str]]] = []

    def answer(self, asked: HttpRequest) -> Reply:
        assert (asked.method, asked.path) == ("POST", "/token?realm=x")
        self.asked.append((asked.headers, dict(urllib.parse.parse_qsl(asked.body.decode()))))
        status, row = self.answers.pop(0)
        elsewhere = {"Location": "http://127.0.0.1:1/elsewhere"} if status == 302 else {}
        return Reply(status, row if isinstance(row, bytes) else json.dumps(row).encode(), elsewhere)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as made:
        yield made


def at(endpoint: Endpoint, **more: Any) -> dict[str, Any]:
    return settings(
        sasl_oauthbearer_token_endpoint_url=endpoint.url,
        sasl_oauthbearer_client_credentials_client_id="me:too",
        sasl_oauthbearer_client_credentials_client_secret=SECRET,
        sasl_login_retry_backoff_ms=1,
        **more,
    )


# ---- a callable, a file ----


def test_a_callable_gives_tokens_with_or_without_their_end() -> None:
    token = made(60)
    found = token_source(settings(oauth_cb=lambda: token))()
    assert found.text == token
    assert found.expires_at_s == pytest.approx(time.time() + 60, abs=5)
    ends = time.time() + 9
    assert token_source(settings(oauth_cb=lambda: ("opaque", ends)))().expires_at_s == (
        pytest.approx(ends, abs=1)
    )
    librdkafka = ("opaque", ends, "principal", {"a": "b"})
    assert token_source(settings(oauth_cb=lambda: librdkafka))().extensions == {"a": "b"}
    given = Token("opaque")
    assert token_source(settings(oauth_cb=lambda: given))() is given


@pytest.mark.parametrize("given", [None, 7, ("x",), "", "two words", "new\nline"])
def test_what_is_no_token_is_refused(given: Any) -> None:
    with pytest.raises(SaslAuthenticationFailedError):
        token_source(settings(oauth_cb=lambda: given))()


def test_what_a_callable_raises_is_told() -> None:
    def failing() -> str:
        raise OSError("no network")

    with pytest.raises(SaslAuthenticationFailedError, match="OSError: no network"):
        token_source(settings(oauth_cb=failing))()


def test_a_file_is_read_again_each_time(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    url = f"file://{urllib.parse.quote(str(path))}"
    source = token_source(settings(sasl_oauthbearer_token_endpoint_url=url))
    first, second = made(60), made(90)
    path.write_text(f"{first}\n")
    assert source().text == first
    path.write_text(second)
    assert source().text == second
    path.write_text(made(-5))
    with pytest.raises(SaslAuthenticationFailedError, match=r"expired [56] s ago"):
        source()
    path.unlink()
    with pytest.raises(SaslAuthenticationFailedError, match="cannot read"):
        source()


# ---- a token endpoint ----


def test_an_endpoint_is_asked_with_id_and_secret(endpoint: Endpoint) -> None:
    token = made(60)
    endpoint.answers = [(200, {"access_token": token, "token_type": "Bearer"})]
    assert token_source(at(endpoint, sasl_oauthbearer_scope="kafka"))().text == token
    headers, form = endpoint.asked[0]
    both = base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode()
    assert both == f"me:too:{SECRET}"
    assert form == {"grant_type": "client_credentials", "scope": "kafka"}


def test_id_and_secret_may_be_encoded_and_come_from_jaas(endpoint: Endpoint) -> None:
    endpoint.answers = [(200, {"access_token": "opaque", "expires_in": 60})]
    text = f'OAuthBearerLoginModule required clientId="me:too" clientSecret="{SECRET}" scope=s;'
    asked = settings(
        sasl_jaas_config=text,
        sasl_oauthbearer_token_endpoint_url=endpoint.url,
        sasl_oauthbearer_header_urlencode=True,
        sasl_login_callback_handler_class=(
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
    )
    assert token_source(asked)().expires_at_s == pytest.approx(time.time() + 60, abs=5)
    headers, form = endpoint.asked[0]
    both = base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode()
    assert both == f"me%3Atoo:{SECRET}"
    assert form["scope"] == "s"


def test_an_endpoint_in_trouble_is_asked_again(endpoint: Endpoint) -> None:
    endpoint.answers = [(503, b""), (429, {}), (200, {"access_token": made()})]
    token_source(at(endpoint))()
    assert len(endpoint.asked) == 3
    endpoint.answers = [(500, b"")] * 9
    with pytest.raises(NetworkError, match="it answered 500"):
        token_source(at(endpoint, sasl_login_retry_backoff_max_ms=2))()


@pytest.mark.parametrize(
    ("status", "row", "words"),
    [
        (401, {"error": "invalid_client"}, "401 invalid_client"),
        (400, {"error": "invalid_scope", "error_description": "no"}, "400 invalid_scope no"),
        (302, {}, "302"),  # it is not followed: the secret would go along
        (200, {}, "returned no token"),
        (200, b"<html>", "returned no token"),
        (200, [1], "returned no token"),
    ],
)
def test_what_an_endpoint_refuses_is_told_at_once(
    endpoint: Endpoint, status: int, row: Any, words: str
) -> None:
    endpoint.answers = [(status, row)]
    with pytest.raises(SaslAuthenticationFailedError, match=words) as told:
        token_source(at(endpoint))()
    assert SECRET not in str(told.value)
    assert len(endpoint.asked) == 1


def test_an_endpoint_with_tls_has_to_show_a_certificate_that_is_trusted(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    endpoint.server.socket = context.wrap_socket(endpoint.server.socket, server_side=True)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    url = endpoint.url.replace("http:", "https:")
    asked = at(endpoint, sasl_login_retry_backoff_max_ms=2)
    asked["sasl.oauthbearer.token.endpoint.url"] = url
    with pytest.raises(NetworkError, match="CERTIFICATE_VERIFY_FAILED"):
        token_source(asked)()
    asked |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    endpoint.answers = [(200, {"access_token": made()})]
    token_source(asked)()
    trust = f'M required ssl.truststore.type=PEM ssl.truststore.location="{tmp_path}/ca.pem";'
    in_jaas = asked | {"ssl.truststore.location": "/nowhere", "sasl.jaas.config": trust}
    endpoint.answers = [(200, {"access_token": made()})]
    token_source(in_jaas)()


def test_an_assertion_is_signed_here_or_read_from_a_file(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    encryption = BestAvailableEncryption(b"passphrase")
    pem = tmp_path / "key.pem"
    pem.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    template = tmp_path / "template.json"
    template.write_text('{"header": {"kid": "k"}, "payload": {"extra": 1}}')
    given = {
        "sasl_oauthbearer_jwt_retriever_class": CLASSES["jwt-bearer"],
        "sasl_oauthbearer_assertion_private_key_file": str(pem),
        "sasl_oauthbearer_assertion_private_key_passphrase": "passphrase",
        "sasl_oauthbearer_assertion_algorithm": "ES256",
        "sasl_oauthbearer_assertion_claim_iss": "me",
        "sasl_oauthbearer_assertion_claim_aud": "them",
        "sasl_oauthbearer_assertion_claim_jti_include": True,
        "sasl_oauthbearer_assertion_template_file": str(template),
    }
    endpoint.answers = [(200, {"access_token": made()})] * 2
    token_source(at(endpoint, **given))()
    assert "authorization" not in endpoint.asked[0][0]
    form = endpoint.asked[0][1]
    claims = jwt.decode(form["assertion"], key.public_key(), ["ES256"], audience="them")
    assert (claims["iss"], claims["extra"], "jti" in claims) == ("me", 1, True)
    assert jwt.get_unverified_header(form["assertion"])["kid"] == "k"
    ready = tmp_path / "assertion"
    ready.write_text("a.b.c\n")
    token_source(at(endpoint, **given, sasl_oauthbearer_assertion_file=str(ready)))()
    assert endpoint.asked[1][1]["assertion"] == "a.b.c"


def test_unsecured_tokens_are_made_where_jaas_says_so() -> None:
    text = (
        'M required unsecuredLoginStringClaim_sub="me" unsecuredLoginLifetimeSeconds="60"'
        ' unsecuredLoginListClaim_scope=" a b" unsecuredLoginExtension_x="y";'
    )
    token = token_source(settings(sasl_jaas_config=text))()
    claims = claims_of(token.text)
    assert claims is not None
    assert (claims["sub"], claims["scope"]) == ("me", ["a", "b"])
    assert token.text.endswith(".")
    assert token.extensions == {"x": "y"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "needs tokens"),
        ({"sasl_login_callback_handler_class": "com.example.Handler"}, "class of Java"),
        ({"sasl_oauthbearer_token_endpoint_url": "ftp://x/y"}, "must be https"),
        (
            {
                "sasl_oauthbearer_token_endpoint_url": "https://x/y",
                "sasl_oauthbearer_jwt_retriever_class": CLASSES["file"],
            },
            "must be a file",
        ),
        (
            {
                "sasl_oauthbearer_token_endpoint_url": "http://x/y",
                "sasl_oauthbearer_client_credentials_client_id": "me",
            },
            "client.secret",
        ),
    ],
)
def test_settings_that_do_not_do_are_named(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        token_source(settings(**more))


# ---- when it is time for another ----


def tokens_of(login: Login, times: int) -> None:
    async def ask() -> None:
        for _ in range(times):
            await asyncio.gather(login.client(), login.client())

    asyncio.run(ask())


@pytest.mark.parametrize(("seconds", "fetches"), [(3600.0, 1), (0.0, 3)])
def test_a_token_serves_until_it_is_time_for_another(seconds: float, fetches: int) -> None:
    """Concurrent requests share one token; if its end is unknown, it is assumed to be near."""
    calls: list[None] = []

    def give() -> Token:
        calls.append(None)
        return Token("opaque", time.time() + seconds if seconds else None)

    tokens_of(Login(settings(oauth_cb=give)), 3)
    assert len(calls) == fetches


def test_a_token_that_holds_still_serves_where_no_other_can_be_had() -> None:
    calls: list[None] = []

    def give() -> Token:
        calls.append(None)
        if len(calls) > 1:
            raise NetworkError("out of reach")
        return Token("opaque", time.time() + 60)

    login = Login(settings(oauth_cb=give))
    tokens_of(login, 1)
    login._refresh_at_s = 0.0
    tokens_of(login, 1)
    assert len(calls) == 2
    assert login._token is not None
    login._token = login._token._replace(expires_at_s=time.time() - 1)
    with pytest.raises(NetworkError, match="out of reach"):
        tokens_of(login, 1)


@pytest.mark.parametrize(
    ("life_s", "earliest_s", "latest_s"),
    [(10_000, 8000, 8500), (1000, 700, 700), (100, 80, 85), (2, 1.6, 1.7)],
)
def test_the_time_for_another_is_kafkas(life_s: float, earliest_s: float, latest_s: float) -> None:
    """80 to 85 % of its lifetime, or 300 s before its end if it lives long enough."""
    login = Login(settings(oauth_cb=lambda: "x"))
    wait_s = login._refresh_time(time.time() + life_s) - time.time()
    assert earliest_s - 0.5 <= wait_s <= latest_s + 0.5
