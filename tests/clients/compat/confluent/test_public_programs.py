"""Two public programs for confluent-kafka, kombu and FastStream, on kstore's clients."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conformance.kstore_broker import KstoreBroker

SUBSTITUTE = """
import importlib, sys
mine = "kstore.clients.compat.confluent"
for part in ("", ".admin", ".error", ".serialization"):
    sys.modules["confluent_kafka" + part] = importlib.import_module(mine + part)
"""
KOMBU = """
from kombu import Connection
with Connection("confluentkafka://BOOTSTRAP/") as connection:
    queue = connection.SimpleQueue("kombu-queue")
    for number in range(5):
        queue.put({"number": number})
    for _ in range(5):
        message = queue.get(block=True, timeout=60)
        print(message.payload["number"], end=" ")
        message.ack()
    queue.close()
"""
FASTSTREAM = """
import asyncio
from faststream.confluent import KafkaBroker

async def main():
    broker = KafkaBroker("BOOTSTRAP", logger=None)
    done = asyncio.Event()

    @broker.subscriber("numbers", group_id="fast", auto_offset_reset="earliest")
    @broker.publisher("doubled")
    async def double(message: dict) -> dict:
        return {"number": 2 * message["number"]}

    @broker.subscriber("doubled", group_id="slow", auto_offset_reset="earliest")
    async def show(message: dict) -> None:
        print(message["number"], end=" ")
        if message["number"] == 8:
            done.set()

    async with broker:
        await broker.start()
        for number in range(5):
            await broker.publish({"number": number}, "numbers")
        await asyncio.wait_for(done.wait(), 60)

asyncio.run(main())
"""
PROOF = """
assert not [name for name in sys.modules if name.startswith("confluent_kafka.cimpl")]
"""


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize(
    ("program", "printed"),
    [(KOMBU, "0 1 2 3 4"), (FASTSTREAM, "0 2 4 6 8")],
    ids=["kombu", "faststream"],
)
def test_a_public_program_runs_unchanged(broker: KstoreBroker, program: str, printed: str) -> None:
    text = SUBSTITUTE + program.replace("BOOTSTRAP", broker.bootstrap) + PROOF
    ran = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == printed.split()
