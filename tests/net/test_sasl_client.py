"""SASL from the connecting side: each mechanism's bytes, what it refuses, and the exchange."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import scramp

from kstore.config import ConfigError
from kstore.config.client.sasl_configs import SASL_CONFIGS
from kstore.errors import (
    IllegalSaslStateError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kstore.net import sasl_client
from kstore.net.sasl_client import Credentials, SaslClient, Token, authenticate, make_client
from kstore.protocol.schema import Message
from kstore.protocol.security.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)

DEFAULTS = {row.name: row.default for row in SASL_CONFIGS}
SECRET = "hunter2-hunter2"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def client(mechanism: str, **settings: Any) -> SaslClient:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return make_client(DEFAULTS | {"sasl.mechanism": mechanism} | given)


def with_user(mechanism: str, user: str = "alice") -> SaslClient:
    return client(mechanism, sasl_username=user, sasl_password=SECRET)


def test_plain_sends_user_and_password() -> None:
    plain = with_user("PLAIN", "ålice")
    assert plain.first() == b"\0" + "ålice".encode() + b"\0" + SECRET.encode()
    assert not plain.done
    assert plain.step(b"") is None
    assert plain.done


def test_jaas_text_gives_user_and_password() -> None:
    text = f'org.apache.kafka.x.PlainLoginModule required username="a" password="{SECRET}";'
    assert client("PLAIN", sasl_jaas_config=text).first() == b"\0a\0" + SECRET.encode()


def test_scram_is_that_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl_client.secrets, "token_urlsafe", lambda _: "rOprNGfwEbeRWgbNEkqO")
    scram = client("SCRAM-SHA-256", sasl_username="user", sasl_password="pencil")
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert scram.step(nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096") == (
        b"c=biws," + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert not scram.done
    assert scram.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    assert scram.done


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("user", ["alice", "a,b=c"])
def test_scram_with_another_implementation(mechanism: str, user: str) -> None:
    kept = scramp.ScramMechanism(mechanism).make_auth_info(SECRET)
    server = scramp.ScramMechanism(mechanism).make_server(lambda name: kept)
    scram = with_user(mechanism, user)
    server.set_client_first(scram.first().decode())
    answer = scram.step(server.get_server_first().encode())
    assert answer is not None
    server.set_client_final(answer.decode())
    assert scram.step(server.get_server_final().encode()) is None
    assert scram.done


def test_a_delegation_token_says_that_it_is_one() -> None:
    text = f'ScramLoginModule required username="id" password="{SECRET}" tokenauth="true";'
    first = client("SCRAM-SHA-256", sasl_jaas_config=text).first()
    assert first.endswith(b",tokenauth=true")


@pytest.mark.parametrize(
    ("challenge", "words"),
    [
        (b"r=other,s=QQ==,i=4096", "nonce"),
        (b"r=NONCE,s=QQ==,i=4096", "nonce"),
        (b"r=NONCEx,s=,i=4096", "salt"),
        (b"r=NONCEx,s=*,i=4096", "salt"),
        (b"r=NONCEx,s=QQ==,i=x", "iterations"),
        (b"r=NONCEx,s=QQ==,i=1", "1 iterations"),
        (b"r=NONCEx,s=QQ==,i=999999999999", "999999999 iterations"),
        (b"r=NONCEx,s=QQ==,i=000005000999999", "000005000 iterations"),
        (b"r=NONCEx,s=QQ==,i=4096,m=x", "extension"),
        (b"\xff\x00", "nonce"),
        (b"", "nonce"),
    ],
)
def test_a_broker_that_does_not_keep_to_scram_is_not_answered(
    challenge: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sasl_client.secrets, "token_urlsafe", lambda _: "NONCE")
    scram = with_user("SCRAM-SHA-256")
    scram.first()
    with pytest.raises(SaslAuthenticationFailedError, match=words) as told:
        scram.step(challenge)
    assert SECRET not in str(told.value)


@pytest.mark.parametrize("final", [b"v=QUFBQQ==", b"v=", b"", b"e=invalid-proof"])
def test_a_broker_that_does_not_know_the_password_is_not_trusted(final: bytes) -> None:
    scram = with_user("SCRAM-SHA-256")
    nonce = scram.first().rpartition(b"r=")[2]
    scram.step(b"r=" + nonce + b"x,s=QUFBQUFBQUE=,i=4096")
    with pytest.raises(SaslAuthenticationFailedError):
        scram.step(final)
    assert not scram.done


def test_oauthbearer_sends_the_token_and_its_extensions() -> None:
    settings = DEFAULTS | {"sasl.mechanism": "oauthbearer"}
    bearer = make_client(settings, Token("a.b.c", None, {"logicalCluster": "x"}))
    assert bearer.first() == b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=x\x01\x01"
    assert bearer.step(b"") is None
    assert bearer.done


def test_oauthbearer_hears_the_refusal_to_its_end() -> None:
    bearer = make_client(DEFAULTS | {"sasl.mechanism": "OAUTHBEARER"}, Token("a.b.c"))
    assert bearer.step(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslAuthenticationFailedError, match="invalid_token"):
        bearer.step(b"more")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "Kerberos is not supported"),
        ({"sasl.mechanism": "X"}, "must be one of PLAIN, SCRAM-SHA-256"),
        ({"sasl.mechanism": "PLAIN"}, "needs a user and a password"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a"}, "needs a user and a password"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "needs a token"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.jaas.config": SECRET},
            "are both set",
        ),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b\0"}, "NUL"),
    ],
)
def test_settings_that_do_not_do_are_named(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as told:
        make_client(DEFAULTS | settings)
    assert SECRET not in str(told.value)


def test_nothing_shows_a_secret() -> None:
    assert SECRET not in repr(Credentials("a", SECRET)) + repr(Token(SECRET))


# ---- the exchange ----


def exchange(answers: list[Message], mechanism: str = "PLAIN") -> tuple[int, list[Message]]:
    """The result of these answers, and the requests."""
    asked: list[Message] = []

    async def ask(request: Message, version: int) -> Message:
        asked.append(request)
        return answers[len(asked) - 1]

    return asyncio.run(authenticate(with_user(mechanism), ask, "h:1")), asked


def test_the_exchange_ends_with_how_long_it_holds() -> None:
    hello = SaslHandshakeResponse(mechanisms=["PLAIN"])
    lifetime_ms, asked = exchange([hello, SaslAuthenticateResponse(session_lifetime_ms=5000)])
    assert lifetime_ms == 5000
    assert isinstance(asked[1], SaslAuthenticateRequest)


@pytest.mark.parametrize(
    ("answers", "error", "words"),
    [
        (
            [SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI"])],
            UnsupportedSaslMechanismError,
            "PLAIN, only GSSAPI",
        ),
        ([SaslHandshakeResponse(error_code=34)], IllegalSaslStateError, "h:1"),
        (
            [
                SaslHandshakeResponse(),
                SaslAuthenticateResponse(error_code=58, error_message="wrong"),
            ],
            SaslAuthenticationFailedError,
            "h:1 refuses PLAIN: wrong",
        ),
    ],
)
def test_refusals_are_told(answers: list[Message], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        exchange(answers)


def test_an_exchange_that_ends_early_is_no_success() -> None:
    async def ask(request: Message, version: int) -> Message:
        if isinstance(request, SaslAuthenticateRequest):
            return SaslAuthenticateResponse(auth_bytes=b"e=other-error")
        return SaslHandshakeResponse()

    with pytest.raises(SaslAuthenticationFailedError):
        asyncio.run(authenticate(with_user("SCRAM-SHA-512"), ask, "h:1"))
