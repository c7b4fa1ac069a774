"""What brokers with SASL have in common in tests: Kafka's settings for a listener with every
mechanism, and the users. Kafka and kstore use the same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.broker.runtime.security.sasl_harness import Signer
from tests.conformance.broker_process import free_port

USER, PASSWORD = "alice", 'al"ice, = secret'
SCRAM_USER, SCRAM_PASSWORD = "b=ob,by", "ﬁ-secret, no SASLprep"
"""SASLprep, which neither Kafka nor librdkafka does, would change the password. Kafka's names are
ASCII.
"""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_SECURITY = "org.apache.kafka.common.security."


def add_listeners(broker: Any, listeners: Mapping[str, str]) -> dict[str, str]:
    """Have a broker that is not started, kstore's or Kafka's, listen by these names and protocols
    beside its own; their addresses.
    """
    where = {name: f"{broker.host}:{free_port()}" for name in listeners}
    ends = {"PLAINTEXT": broker.bootstrap} | where
    protocols = {"PLAINTEXT": "PLAINTEXT"} | dict(listeners)
    advertised = _joined("://", ends)
    if hasattr(broker, "controller_port"):
        ends["CONTROLLER"] = f"{broker.host}:{broker.controller_port}"
        protocols["CONTROLLER"] = "PLAINTEXT"
    broker.overrides |= {
        "listeners": _joined("://", ends),
        "advertised.listeners": advertised,
        "listener.security.protocol.map": _joined(":", protocols),
    }
    return where


def add_plain_listener(broker: Any, passwords: Mapping[str, str]) -> str:
    """Have a broker that is not started also listen for these users of SASL/PLAIN; the address."""
    users = " ".join(f'user_{user}="{password}"' for user, password in passwords.items())
    broker.overrides |= {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"{_SECURITY}plain.PlainLoginModule required {users};"
        ),
    }
    return add_listeners(broker, {"SASL_PLAINTEXT": "SASL_PLAINTEXT"})["SASL_PLAINTEXT"]


def _joined(between: str, pairs: Mapping[str, str]) -> str:
    return ",".join(f"{name}{between}{value}" for name, value in pairs.items())


def listener_settings(listener: str, signer: Signer, reauth_ms: int = 0) -> dict[str, str]:
    """What a broker needs to know for every mechanism on a listener."""
    prefix = f"listener.name.{listener.lower()}."
    secret = PASSWORD.replace('"', '\\"')
    found = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{prefix}plain.sasl.jaas.config": f"{_SECURITY}plain.PlainLoginModule required "
        f'user_{USER}="{secret}";',
        f"{prefix}oauthbearer.sasl.jaas.config": (
            f"{_SECURITY}oauthbearer.OAuthBearerLoginModule required;"
        ),
        f"{prefix}oauthbearer.sasl.server.callback.handler.class": (
            f"{_SECURITY}oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{signer.path}",
        "sasl.oauthbearer.expected.audience": "kstore",
        "connections.max.reauth.ms": str(reauth_ms),
    }
    for mechanism in ("scram-sha-256", "scram-sha-512"):
        found[f"{prefix}{mechanism}.sasl.jaas.config"] = (
            f"{_SECURITY}scram.ScramLoginModule required;"
        )
    return found


def client_settings(
    mechanism: str, bootstrap: str, token: Any = None, protocol: str = "SASL_PLAINTEXT"
) -> dict[str, Any]:
    """What a client of kstore's needs to know; OAUTHBEARER gets its tokens from a callable."""
    found = {
        "bootstrap.servers": bootstrap,
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return found | {"oauth_cb": token}
    is_plain = mechanism == "PLAIN"
    return found | {
        "sasl.username": USER if is_plain else SCRAM_USER,
        "sasl.password": PASSWORD if is_plain else SCRAM_PASSWORD,
    }
