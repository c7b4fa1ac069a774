"""kafkajs, unmodified: this JavaScript client uses older versions of the protocol than others."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "node"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="no Node.js"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program beside its one package, which npm fetches."""
    folder = tmp_path_factory.mktemp("node")
    for file in SOURCES.glob("*.js*"):
        shutil.copy(file, folder)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(
        command, cwd=folder, check=False, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return folder / "kafkajs.js"


def test_kafkajs_produces_consumes_transacts_and_administers(program, peer, topic):
    done = subprocess.run(
        ["node", str(program), peer.bootstrap, topic],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    values = [f"{codec}-{n}-{n:0100d}" for codec in ("none", "gzip") for n in range(20)]
    assert json.loads(done.stdout) == {
        "created": True,
        "created again": False,
        "values": [*values, *values, "commit"],
        "offsets": [["0", "84"]],
        "committed": "83",
        "group": "Empty",
        "low": "5",
        "retention": "3600000",
        "partitions": 3,
    }
