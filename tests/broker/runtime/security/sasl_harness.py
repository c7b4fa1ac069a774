"""What tests of SASL listeners share: users, a signer of tokens, settings, raw frames."""

from __future__ import annotations

import base64
import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from kstore.protocol.registry import APIS, decode_response
from kstore.protocol.schema import Message
from kstore.testing import Broker
from tests.broker.harness.wire import Wire

PASSWORD = "Correct-Horse"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PATIENCE_S = 30.0


def plain_users(*names: str, own: str = "") -> str:
    """The sasl.jaas.config of a listener with PLAIN."""
    myself = f' username="{own}" password="{PASSWORD}"' if own else ""
    users = "".join(f' user_{name}="{PASSWORD}"' for name in names)
    return f"{PLAIN_MODULE} required{myself}{users};"


def plain_login(user: str, password: str = PASSWORD) -> str:
    """The sasl.jaas.config of a client with PLAIN."""
    return f'{PLAIN_MODULE} required username="{user}" password="{password}";'


def listeners(**protocols: str) -> dict[str, str]:
    """The settings of a broker with listeners of these names, on ports that the system chooses."""
    return {
        "listeners": ",".join(f"{name}://localhost:0" for name in protocols),
        "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
    }


def users_of(listener: str, *names: str) -> dict[str, str]:
    """The settings of a broker with a listener with PLAIN, these users, and SCRAM."""
    prefix = f"listener.name.{listener.lower()}"
    found = {
        f"{prefix}.scram-sha-{bits}.sasl.jaas.config": f"{SCRAM_MODULE} required;"
        for bits in (256, 512)
    }
    return found | {f"{prefix}.plain.sasl.jaas.config": plain_users(*names)}


class Signer:
    """Issues tokens: a key, and its JWK set as a file."""

    def __init__(self, folder: Path) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.path = folder / "jwks.json"
        numbers = self._key.public_key().public_numbers()
        row = {"kty": "RSA", "kid": "k1", "use": "sig", "alg": "RS256",
               "n": _number(numbers.n), "e": _number(numbers.e)}  # fmt: skip
        self.path.write_text(json.dumps({"keys": [row]}))

    def token(self, user: str, *, life_s: float = 3600, kid: str = "k1", **more: Any) -> str:
        now = time.time()
        claims = {"sub": user, "iat": int(now), "exp": now + life_s, "aud": "kstore", "iss": "us"}
        return str(
            jwt.encode(claims | more, self._key, algorithm="RS256", headers={"kid": kid})  # type: ignore[arg-type]
        )


def _number(value: int) -> str:
    data = value.to_bytes((value.bit_length() + 7) // 8)
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def ends(broker: Broker) -> list[tuple[str, str]]:
    """(listener, host:port) of all brokers of the cluster, by their ids."""
    with urllib.request.urlopen(f"{broker.http_url}/cluster", timeout=PATIENCE_S) as answer:
        rows = sorted(json.loads(answer.read())["brokers"], key=lambda row: int(row["id"]))
    found = [end for row in rows for end in row["endpoints"]]
    return [(end["listener"], f"{end['host']}:{end['port']}") for end in found]


def addresses(broker: Broker) -> dict[str, str]:
    """host:port of each listener of a single broker."""
    return dict(ends(broker))


class RawClient(Wire):
    """A connection that the broker may close: its answers are then None."""

    def frame(self) -> bytes | None:
        """The next answer; None if the broker has closed the connection."""
        try:
            return self.answer()
        except ConnectionError:
            return None

    def ask(self, request: Message, version: int, client_id: str = "raw") -> Any:
        """The answer to a request; None if the connection was closed instead."""
        self.client_id = client_id
        self.put(request, version)
        frame = self.frame()
        if frame is None:
            return None
        return decode_response(frame, APIS[request.API_KEY].response, version)[1]
