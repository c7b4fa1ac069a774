"""kstore/net/sasl_server.py: with the clients' side, with the scramp library, and with anything."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Any

import pytest
import scramp
from hypothesis import given
from hypothesis import strategies as st

from kstore.net.sasl_client import Token, make_client
from kstore.net.sasl_server import (
    BearerToken,
    OAuthBearerServer,
    PlainServer,
    SaslRefusedError,
    SaslServer,
    ScramServer,
    TokenRefusedError,
)

USER, PASSWORD = "a,b=c ä", "pass word ö"
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class Keys:
    """What a broker keeps of a password."""

    def __init__(self, password: str, digest: str, iterations: int = 4096) -> None:
        self.salt = secrets.token_bytes(16)
        self.iterations = iterations
        salted = hashlib.pbkdf2_hmac(digest, password.encode(), self.salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", digest)
        self.stored_key = hashlib.new(digest, client_key).digest()
        self.server_key = hmac.digest(salted, b"Server Key", digest)


KEYS = {name: Keys(PASSWORD, digest) for name, digest in HASHES.items()}


def check_token(token: str) -> BearerToken:
    if token != "t.o.k":
        raise TokenRefusedError("another one")
    return BearerToken(USER, 5)


def server(mechanism: str) -> SaslServer:
    if mechanism == "PLAIN":
        return PlainServer(lambda user, password: (user, password) == (USER, PASSWORD))
    if mechanism == "OAUTHBEARER":
        return OAuthBearerServer(check_token)
    return ScramServer(mechanism, lambda user: KEYS[mechanism] if user == USER else None)


def client(mechanism: str, *, password: str = PASSWORD, token: str = "t.o.k") -> Any:
    settings = {
        "sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": password,
    }  # fmt: skip
    return make_client(settings, Token(token))


def exchange(one: Any, other: SaslServer) -> None:
    message: bytes | None = one.first()
    while message is not None:
        message = one.step(other.step(message))


class Deaf:
    """A client that answers a refused token as RFC 7628 asks."""

    def __init__(self, client: Any) -> None:
        self.first = client.first

    def step(self, challenge: bytes) -> bytes:
        return b"\x01"


@pytest.mark.parametrize("mechanism", ["PLAIN", *HASHES, "OAUTHBEARER"])
def test_who_knows_the_secret_is_let_in(mechanism: str) -> None:
    accepting = server(mechanism)
    asking = client(mechanism)
    exchange(asking, accepting)
    assert (accepting.done, accepting.user, asking.done) == (True, USER, True)
    assert accepting.expires_at_ms == (5 if mechanism == "OAUTHBEARER" else None)


@pytest.mark.parametrize("mechanism", ["PLAIN", *HASHES, "OAUTHBEARER"])
def test_who_does_not_is_refused_and_nothing_is_given_away(mechanism: str) -> None:
    accepting = server(mechanism)
    asking = client(mechanism, password="guess", token="g.u.e")
    with pytest.raises(SaslRefusedError) as caught:
        exchange(Deaf(asking) if mechanism == "OAUTHBEARER" else asking, accepting)
    assert not accepting.done
    for secret in (PASSWORD, "guess", "g.u.e"):
        assert secret not in f"{caught.value} {caught.value.client_message}"


@pytest.mark.parametrize("mechanism", HASHES)
def test_scram_with_the_scramp_library(mechanism: str) -> None:
    """Which prepares names and passwords (SASLprep), as Kafka does not: plain ones are the same."""
    keys = Keys("secret", HASHES[mechanism])
    accepting = ScramServer(mechanism, lambda user: keys if user == "user" else None)
    asking = scramp.ScramClient([mechanism], "user", "secret")
    asking.set_server_first(accepting.step(asking.get_client_first().encode()).decode())
    asking.set_server_final(accepting.step(asking.get_client_final().encode()).decode())
    assert accepting.done


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize(
    ("header", "binding", "is_let_in"),
    [
        (b"n,,", b"n,,", True),
        (b"n,a=a=2Cb=3Dc \xc3\xa4,", b"n,a=a=2Cb=3Dc \xc3\xa4,", True),
        (b"n,,", b"y,,", False),  # the first message had another flag: it was changed in transit
        (b"n,,", b"p=tls-unique,,data", False),
        (b"n,,", b"n,a=x,", False),
        (b"n,a=a=2Cb=3Dc \xc3\xa4,", b"n,,", False),
        (b"n,,", b"x", False),
        (b"y,,", b"y,,", False),
        (b"p=tls-unique,,", b"p=tls-unique,,", False),
    ],
)
def test_the_channel_binding_is_what_the_first_message_said(
    mechanism: str, header: bytes, binding: bytes, is_let_in: bool
) -> None:
    """The proof fits each time: it signs the c= that is sent."""
    accepting, asking = server(mechanism), client(mechanism)
    bare = asking.first().removeprefix(b"n,,")

    def exchange() -> None:
        challenge = accepting.step(header + bare)
        assert accepting.step(proving(mechanism, bare, challenge, binding)).startswith(b"v=")

    if is_let_in:
        exchange()
    else:
        with pytest.raises(SaslRefusedError):
            exchange()
    assert accepting.done is is_let_in


def proving(mechanism: str, bare: bytes, challenge: bytes, binding: bytes) -> bytes:
    """A last message with this channel binding, signed with the password."""
    digest, keys = HASHES[mechanism], KEYS[mechanism]
    salted = hashlib.pbkdf2_hmac(digest, PASSWORD.encode(), keys.salt, keys.iterations)
    nonce = challenge.partition(b",")[0]
    final = b"c=" + base64.b64encode(binding) + b"," + nonce
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(keys.stored_key, b",".join((bare, challenge, final)), digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return final + b",p=" + base64.b64encode(proof)


def test_an_extension_that_must_be_understood_is_refused() -> None:
    with pytest.raises(SaslRefusedError):
        server("SCRAM-SHA-256").step(b"n,,m=x,n=user,r=abc")


def test_a_scram_message_is_good_for_one_exchange() -> None:
    first = server("SCRAM-SHA-256")
    asking = client("SCRAM-SHA-256")
    proof = asking.step(first.step(asking.first()))
    second = server("SCRAM-SHA-256")
    second.step(asking.first())
    with pytest.raises(SaslRefusedError):
        second.step(proof)


def test_too_few_iterations_are_refused() -> None:
    keys = Keys(PASSWORD, "sha256", iterations=1000)
    with pytest.raises(SaslRefusedError, match="too few iterations"):
        ScramServer("SCRAM-SHA-256", lambda _: keys).step(b"n,,n=a,r=b")


@pytest.mark.parametrize("mechanism", ["PLAIN", *HASHES, "OAUTHBEARER"])
@given(messages=st.lists(st.one_of(
    st.binary(max_size=60),
    st.from_regex(r"\An,(a=[ab]{1,2})?,(n=[a=23CD]{1,6},)?r=[a-c]{1,3}(,tokenauth=true)?\Z"),
    st.from_regex(r"\Ac=biws,r=[a-c]{1,3},p=[A-D=]{0,5}\Z"),
    st.from_regex(r"\A[ab]?\x00[ab]{0,2}\x00[ab]{0,2}\Z"),
    st.from_regex("\\An,,\x01(auth=Bearer [a-c.]{1,4}\x01|x=y\x01){0,2}\x01\\Z"),
), min_size=1, max_size=3))  # fmt: skip
def test_nothing_else_is_let_in(mechanism: str, messages: list[bytes | str]) -> None:
    accepting = server(mechanism)
    try:
        for message in messages:
            accepting.step(message.encode() if isinstance(message, str) else message)
    except SaslRefusedError:
        pass
    assert not accepting.done
    assert accepting.user == ""
