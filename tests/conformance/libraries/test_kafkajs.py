"""kafkajs, unmodified: this JavaScript client uses older versions of the protocol than others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.beside.programs import output_of

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
    output_of(command, cwd=folder, timeout_s=200)
    return folder / "kafkajs.js"


def test_kafkajs_produces_consumes_transacts_and_administers(program, peer, topic):
    written = output_of(["node", program, peer.bootstrap, topic])
    values = [f"{codec}-{n}-{n:0100d}" for codec in ("none", "gzip") for n in range(20)]
    assert json.loads(written) == {
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
