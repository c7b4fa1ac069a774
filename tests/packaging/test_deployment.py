"""The files of ops/: a broker accepts their settings. `make ops` checks them against the schemas of
GitHub, Compose and Kubernetes.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kstore.config import BrokerConfig

OPS = Path(__file__).parents[2] / "ops"
ENVIRONMENT = re.compile(
    r"(?:name: |^ *|[ =])(KSTORE_[A-Z_]+)(?:=|: |, value: )\"?([^\"\s}]+)", re.M
)
OVERRIDE = re.compile(r"--override(?:\"?, \"?| )([a-z.]+)=([^\"\s]+)")
FILES = [
    OPS / "container" / "Containerfile",
    OPS / "container" / "compose.yaml",
    OPS / "kubernetes" / "kstore.yaml",
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_broker_accepts_the_settings(path: Path) -> None:
    text = path.read_text("utf-8")
    text = text.replace("${HOSTNAME##*-}", "0").replace("${HOSTNAME}", "kstore-0")
    environment = dict(ENVIRONMENT.findall(text))
    brokers: dict[str, dict[str, str]] = {}
    for number, line in enumerate(text.splitlines()):
        for name, value in OVERRIDE.findall(line):
            brokers.setdefault(str(number) if "command:" in line else "all", {})[name] = value
    assert environment, "the file sets something by its environment"
    assert brokers, "and something by its arguments"
    for overrides in brokers.values():
        config = BrokerConfig.load(None, environ=environment, overrides=overrides)
        assert "localhost" not in config["listeners"], "it listens where others reach it"
        if "node.id" in overrides:
            assert config["node.id"] == int(overrides["node.id"])


def test_the_manifest_says_how_to_create_its_secrets() -> None:
    text = (OPS / "kubernetes" / "kstore.yaml").read_text("utf-8")
    secrets = re.findall(r"secretKeyRef: \{name: ([\w-]+), key: (\w+)\}", text)
    assert secrets == [("kstore-http", "token")]
    for name, key in secrets:
        assert f"kubectl create secret generic {name} --from-literal={key}=" in text


def test_the_container_has_what_a_build_needs() -> None:
    ignored = (OPS.parent / ".containerignore").read_text("utf-8").splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert {"pyproject.toml", "setup.py", "kstore", "broker", "clients", "pipeline"} <= kept
    assert {name for name in kept if not (OPS.parent / name).exists()} == set()
