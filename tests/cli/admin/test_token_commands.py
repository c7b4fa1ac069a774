"""`kstore token` against a running broker: what it prints, and that no secret is where others see
it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from kstore.cli.app import run
from kstore.testing import Broker
from tests.broker.runtime.security.sasl_harness import addresses, plain_login
from tests.broker.runtime.security.token_harness import log_in_with_token, token_settings

pytestmark = pytest.mark.slow

SETTINGS = token_settings("SASL") | {
    "listeners": "LOCAL://localhost:0,SASL://localhost:0",
    "listener.security.protocol.map": "LOCAL:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "inter.broker.listener.name": "LOCAL",
}


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("token-cli"), SETTINGS) as broker:
        yield addresses(broker)["SASL"]


@pytest.fixture
def login(where: str) -> list[str]:
    settings = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": plain_login("alice"),
    }  # fmt: skip
    return ["-b", where, *(f"-X{name}={value}" for name, value in settings.items())]


def test_a_token_from_its_creation_to_its_end(
    where: str, login: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def say(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        found = run(["token", *arguments, *login])
        told = capsys.readouterr()
        assert found == code, told.err
        return told.err if code else told.out

    made = json.loads(say("create", "--renewer", "User:bob", "--max-lifetime", "2h", "--json"))
    token_id, secret = made["token_id"], made["hmac"]
    assert (made["owner"], made["renewers"]) == ("User:alice", "User:bob")
    with log_in_with_token(where, token_id, base64.b64decode(secret)):
        pass
    listed = say("list", "--owner", "User:alice")
    assert token_id in listed
    assert secret not in listed
    assert "expires at" in say("renew", token_id, "--period", "1h")
    assert "expires at" in say("expire", token_id, "--period", "30m")
    assert "is removed" in say("expire", token_id)
    assert token_id not in say("list")
    assert "kstore token list" in say("renew", token_id, code=2)
    plain = say("create").split()
    assert len(plain) == 2
    assert "INVALID_PRINCIPAL_TYPE" in say("create", "--renewer", "Group:x", code=1)
