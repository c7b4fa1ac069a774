"""Delegation tokens: which changes are allowed, when they end, and that they need the key."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.broker.state.security.delegation_tokens import (
    DelegationToken,
    Lifetimes,
    Principal,
    TokenRefusal,
    expire,
    hmac_of,
    new_token,
    own_key,
    renew,
    scram_credential,
)
from kstore.broker.state.security.token_nodes import may_be_over, parse, resealed, sealed
from kstore.errors import ErrorCode

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
LIMITS = Lifetimes(max_ms=1000, renewal_ms=100)
KEY = b"key"
TOKEN = DelegationToken("id", ALICE, CAROL, (BOB,), 0, 100, 1000)
NONCE = bytes(range(12))


def signed(token: DelegationToken, key: bytes) -> bytes:
    """The form of before, which showed everything."""
    fields = {
        "version": 3, "owner": str(token.owner), "tokenRequester": str(token.requester),
        "renewers": [str(each) for each in token.renewers], "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms, "expiryTimestamp": token.expires_ms,
        "tokenId": token.token_id,
    }  # fmt: skip
    text = json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
    mac = hmac.digest(own_key(key, b"node"), text, "sha256").hex()
    return json.dumps(fields | {"signature": mac}).encode()


def written(token: DelegationToken, key: bytes) -> bytes:
    return sealed(token, key, NONCE)


FORMS = pytest.mark.parametrize("form", [signed, written])

PRINCIPALS = st.builds(
    Principal, st.text(min_size=1).filter(lambda kind: ":" not in kind), st.text()
)
TIMES = st.integers(0, 2**63 - 1)
TOKENS = st.builds(
    DelegationToken, st.text(min_size=1), PRINCIPALS, PRINCIPALS,
    st.lists(PRINCIPALS, max_size=3).map(tuple), TIMES, TIMES, TIMES,
)  # fmt: skip


def made(requested_ms: int, limits: Lifetimes = LIMITS, *renewers: Principal) -> object:
    return new_token("id", ALICE, CAROL, renewers, 5, requested_ms, limits)


@pytest.mark.parametrize(
    ("requested_ms", "max_ms", "expires_ms"),
    [(-1, 1005, 105), (0, 1005, 105), (50, 55, 55), (500, 505, 105), (2**63 - 1, 1005, 105)],
)
def test_a_token_lives_as_long_as_asked_but_no_longer_than_allowed(
    requested_ms: int, max_ms: int, expires_ms: int
) -> None:
    expected = DelegationToken("id", ALICE, CAROL, (BOB, BOB), 5, expires_ms, max_ms)
    assert made(requested_ms, LIMITS, BOB, BOB) == expected


def test_times_do_not_overflow() -> None:
    token = made(-1, Lifetimes(2**63 - 1, 2**63 - 1))
    assert isinstance(token, DelegationToken)
    assert token.max_ms == token.expires_ms == 2**63 - 1


def test_renewers_are_users() -> None:
    refused = TokenRefusal(ErrorCode.INVALID_PRINCIPAL_TYPE)
    assert made(-1, LIMITS, BOB, Principal("Group", "x")) == refused
    assert new_token("id", Principal("A:B", "c"), ALICE, (), 0, -1, LIMITS) == refused


@pytest.mark.parametrize("who", [ALICE, BOB])
def test_owner_and_renewers_renew_up_to_the_maximum(who: Principal) -> None:
    assert renew(TOKEN, who, 50, -1, LIMITS) == TOKEN._replace(expires_ms=150)
    assert renew(TOKEN, who, 50, 7, LIMITS) == TOKEN._replace(expires_ms=57)
    late = TOKEN._replace(expires_ms=960)
    assert renew(late, who, 950, 500, LIMITS) == late._replace(expires_ms=1000)


def test_who_has_created_a_token_for_another_may_see_it_alone() -> None:
    mismatch = TokenRefusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    assert renew(TOKEN, CAROL, 50, -1, LIMITS) == mismatch
    assert expire(TOKEN, CAROL, 50, -1) == mismatch
    assert TOKEN.concerns(CAROL)


def test_which_error_wins_for_an_expired_token() -> None:
    over = TokenRefusal(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    mismatch = TokenRefusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    assert renew(TOKEN, CAROL, 101, -1, LIMITS) == over
    assert expire(TOKEN, CAROL, 101, 5) == mismatch
    assert expire(TOKEN, ALICE, 101, 5) == over
    assert expire(TOKEN, ALICE, 101, -1) == TOKEN._replace(expires_ms=101)


def test_a_token_is_valid_until_its_end() -> None:
    assert not TOKEN.is_over(100)
    assert TOKEN.is_over(101)
    assert TOKEN._replace(expires_ms=2000).is_over(1001)


@FORMS
@given(token=TOKENS)
def test_what_is_written_is_read(
    form: Callable[[DelegationToken, bytes], bytes], token: DelegationToken
) -> None:
    data = form(token, KEY)
    assert parse(token.token_id, data, KEY) == token
    assert may_be_over(data, min(token.expires_ms, token.max_ms) + 1)
    assert not may_be_over(data, min(token.expires_ms, token.max_ms))


def test_nobody_without_the_key_sees_whose_a_token_is() -> None:
    token = TOKEN._replace(owner=Principal("User", "alice-of-accounting"))
    data = written(token, KEY)
    assert set(json.loads(data)) == {"version", "tokenId", "endTimestamp", "sealed"}
    assert b"accounting" not in data + base64.b64decode(json.loads(data)["sealed"])
    assert sealed(token, KEY, bytes(12)) != data
    for key in (b"other", b"", b"keykey"):
        with pytest.raises(ValueError, match=r"this broker's delegation\.token\.secret\.key"):
            parse("id", data, key)


def test_signed_tokens_are_sealed_once() -> None:
    data = resealed("id", signed(TOKEN, KEY), KEY, NONCE)
    assert data == written(TOKEN, KEY)
    assert resealed("id", data, KEY, NONCE) is None
    for other in (signed(TOKEN, b"other"), b"", b"x", b"[]", b"{}"):
        assert resealed("id", other, KEY, NONCE) is None


@FORMS
@pytest.mark.parametrize("field", [*json.loads(signed(TOKEN, KEY)), "more"])
def test_nothing_of_a_token_can_be_changed_without_the_key(
    form: Callable[[DelegationToken, bytes], bytes], field: str
) -> None:
    fields = json.loads(form(TOKEN, KEY))
    if field not in fields and form is written:
        return  # what is only added is not read
    fields[field] = ["User:x"] if field == "renewers" else "User:x"
    if field.endswith("Timestamp"):
        fields[field] = 7
    if field == "tokenId" and form is written:
        assert parse("id", json.dumps(fields).encode(), KEY) == TOKEN  # its place names it
        return
    with pytest.raises(ValueError, match=r"secret\.key|form"):
        parse("id", json.dumps(fields).encode(), KEY)


def test_no_byte_of_a_sealed_token_can_be_changed_without_the_key() -> None:
    fields = json.loads(written(TOKEN, KEY))
    box = base64.b64decode(fields["sealed"])
    for at in range(len(box)):
        changed = box[:at] + bytes([box[at] ^ 1]) + box[at + 1 :]
        text = json.dumps(fields | {"sealed": base64.b64encode(changed).decode()})
        with pytest.raises(ValueError, match=r"secret\.key"):
            parse("id", text.encode(), KEY)
    later = json.dumps(fields | {"endTimestamp": fields["endTimestamp"] + 1})
    for text in (later, json.dumps(fields | {"sealed": ""})):
        with pytest.raises(ValueError, match=r"secret\.key"):
            parse("id", text.encode(), KEY)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"x", b"[]", b"{}", b"7", b'{"version":4}', b'{"version":4,"sealed":7}',
        b'{"version":4,"endTimestamp":1,"sealed":"%%"}', b"[" * 100_000,
        b'{"version":4,"endTimestamp":Infinity,"sealed":""}',
        b'{"version":3,"expiryTimestamp":Infinity,"maxTimestamp":1e999}',
    ],
)  # fmt: skip
def test_what_is_no_token_is_not_read(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"token|Expecting|secret|base64"):
        parse("id", data, KEY)
    assert not may_be_over(data, 0)
    assert resealed("id", data, KEY, NONCE) is None


@FORMS
def test_a_token_does_not_lie_under_another_name(
    form: Callable[[DelegationToken, bytes], bytes],
) -> None:
    with pytest.raises(ValueError, match=r"secret\.key"):
        parse("other", form(TOKEN, KEY), KEY)


@FORMS
def test_no_secret_is_written(form: Callable[[DelegationToken, bytes], bytes]) -> None:
    data = form(TOKEN, KEY)
    secret = hmac_of(KEY, "id")
    for text in (secret.hex().encode(), base64.b64encode(secret), KEY):
        assert text not in data


@pytest.mark.parametrize("bits", [256, 512])
def test_the_password_is_the_hmac_in_base64(bits: int) -> None:
    """By RFC 5802's own formulas."""
    digest = f"sha{bits}"
    found = scram_credential(KEY, "id", f"SCRAM-SHA-{bits}")
    password = base64.b64encode(hmac.new(KEY, b"id", "sha512").digest())
    salted = hashlib.pbkdf2_hmac(digest, password, found.salt, found.iterations)
    client_key = hmac.new(salted, b"Client Key", digest).digest()
    assert found.stored_key == hashlib.new(digest, client_key).digest()
    assert found.server_key == hmac.new(salted, b"Server Key", digest).digest()
    assert found.iterations == 4096
    assert found.salt != scram_credential(KEY, "other", f"SCRAM-SHA-{bits}").salt
