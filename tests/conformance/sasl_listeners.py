"""What brokers with SASL have in common in tests: Kafka's settings for a listener with every
mechanism, the users, and who signs tokens. The same text serves Kafka and kstore.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

USER, PASSWORD = "alice", 'al"ice, = secret'
SCRAM_USER, SCRAM_PASSWORD = "b=ob,by", "ﬁ-secret, no SASLprep"
"""SASLprep, which neither Kafka nor librdkafka does, would change the password. Kafka's names are
ASCII.
"""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
AUDIENCE = "kstore-tests"
_SECURITY = "org.apache.kafka.common.security."


class Issuer:
    """Signs tokens, and tells brokers its public key in a file."""

    def __init__(self, folder: Path) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public: dict[str, Any] = json.loads(
            jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key())
        )
        self.jwks = folder / "jwks.json"
        row = public | {"kid": "first", "alg": "RS256", "use": "sig"}
        self.jwks.write_text(json.dumps({"keys": [row]}))

    def token(self, user: str = USER, seconds: float = 3600, **claims: Any) -> str:
        """A JWT that ends after so many seconds."""
        now = time.time()
        payload = {"sub": user, "iat": int(now), "exp": int(now + seconds), "aud": AUDIENCE}
        return jwt.encode(payload | claims, self._key, "RS256", {"kid": "first"})


def listener_settings(listener: str, issuer: Issuer, reauth_ms: int = 0) -> dict[str, str]:
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
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{issuer.jwks}",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
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
