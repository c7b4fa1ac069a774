"""What tests of delegation tokens share: settings, logins over raw frames, the four requests."""

from __future__ import annotations

import base64
from typing import Any

from kstore.net.sasl_client import SaslClient, make_client
from kstore.protocol.schema import Message
from tests.broker.runtime.security.sasl_harness import PASSWORD, SCRAM_MODULE, RawClient, users_of
from tests.plain_messages import Ask

SECRET = "the-key-of-all-tokens"
SCRAM_256, SCRAM_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"


class RefusedError(PermissionError):
    """The log of the broker."""


def token_settings(*listeners: str) -> dict[str, str]:
    """The settings of a broker with these SASL listeners."""
    settings = {
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM_256},{SCRAM_512}",
        "delegation.token.secret.key": SECRET,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    for name in listeners:
        settings |= users_of(name, "alice", "bob", "carol")
    return settings


def token_jaas(token_id: str, hmac: bytes) -> str:
    """The sasl.jaas.config of a client with a token."""
    password = base64.b64encode(hmac).decode()
    return f'{SCRAM_MODULE} required username="{token_id}" password="{password}" tokenauth="true";'


def token_client(token_id: str, hmac: bytes, mechanism: str = SCRAM_256) -> SaslClient:
    """The client side of one login with a token."""
    return make_client(
        {"sasl.mechanism": mechanism, "sasl.jaas.config": token_jaas(token_id, hmac)}
    )


def shake_hands(raw: RawClient, client: SaslClient) -> int:
    """Authenticate; returns the lifetime of the session in ms. Raises RefusedError."""
    hand = raw.ask(Ask.SaslHandshake(mechanism=client.mechanism), 1)
    assert hand.error_code == 0, hand
    message: bytes | None = client.first()
    lifetime_ms = 0
    while message is not None:
        answer = raw.ask(Ask.SaslAuthenticate(auth_bytes=message), 2)
        if answer.error_code:
            raise RefusedError(answer.error_message)
        lifetime_ms = answer.session_lifetime_ms
        message = client.step(bytes(answer.auth_bytes))
    return lifetime_ms


def log_in(
    address: str, user: str, password: str = PASSWORD, mechanism: str = "PLAIN"
) -> RawClient:
    settings = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    return _logged_in(address, make_client(settings))


def log_in_with_token(
    address: str, token_id: str, hmac: bytes, mechanism: str = SCRAM_256
) -> RawClient:
    return _logged_in(address, token_client(token_id, hmac, mechanism))


def _logged_in(address: str, client: SaslClient) -> RawClient:
    raw = RawClient(address)
    try:
        shake_hands(raw, client)
    except RefusedError:
        raw.close()
        raise
    return raw


def create(*renewers: str, life_ms: int = -1, owner: str = "", kind: str = "User") -> Message:
    """Create a token; ``kind`` is the principal type of the renewers."""
    return Ask.CreateDelegationToken(
        owner_principal_type="User" if owner else "",
        owner_principal_name=owner,
        renewers=[{"principal_type": kind, "principal_name": each} for each in renewers],
        max_lifetime_ms=life_ms,
    )


def renew(hmac: bytes, period_ms: int = -1) -> Message:
    return Ask.RenewDelegationToken(hmac=hmac, renew_period_ms=period_ms)


def expire(hmac: bytes, period_ms: int = -1) -> Message:
    return Ask.ExpireDelegationToken(hmac=hmac, expiry_time_period_ms=period_ms)


def describe(*owners: str, every: bool = True) -> Message:
    """Describe the tokens of these owners; without one, of all, or (not ``every``) of none."""
    rows = [{"principal_type": "User", "principal_name": each} for each in owners]
    return Ask.DescribeDelegationToken(owners=None if every and not rows else rows)


def allow(user: str, resource_type: int, name: str, operation: int) -> Any:
    row = {
        "resource_type": resource_type, "resource_name": name, "resource_pattern_type": 3,
        "principal": f"User:{user}", "host": "*", "operation": operation, "permission_type": 3,
    }  # fmt: skip
    return Ask.CreateAcls(creations=[row])
