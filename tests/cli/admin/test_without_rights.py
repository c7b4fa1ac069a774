"""The output of commands for a user with only some of the required rights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kstore.cli.app import run
from kstore.clients import AdminClient
from tests.conformance.kstore_broker import KstoreBroker

pytestmark = pytest.mark.slow


def test_a_topic_is_described_without_the_right_to_see_its_configs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with KstoreBroker(tmp_path, overrides=settings) as broker:
        with AdminClient(broker.bootstrap) as admin:
            admin.create_topics({"orders": 2})
        at = ["-b", broker.bootstrap]
        rule = ["--principal", "User:ANONYMOUS", "--operation", "describe", "--topic", "orders"]
        assert run(["acl", "add", *rule, *at]) == 0
        capsys.readouterr()

        assert run(["topic", "describe", "orders", *at]) == 0
        text = capsys.readouterr().out
        assert "needs DESCRIBE_CONFIGS on the topic" in text
        assert text.count("leader 1") == 2
        assert run(["topic", "describe", "orders", "--json", *at]) == 0
        assert json.loads(capsys.readouterr().out)["configs"] is None
