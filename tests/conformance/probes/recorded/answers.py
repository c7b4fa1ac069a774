"""Kafka's responses to the probes. They are recorded in one file for each version, so that tests
can compare kstore with Kafka without running Kafka.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from tests.conformance.kafka_jars import KAFKA_VERSION
from tests.conformance.probes.peer import Peer

RECORDED = Path(__file__).parent / f"kafka-{KAFKA_VERSION}.json.xz"


def as_recorded(said: Any) -> Any:
    """An answer after it was written and read again; a UUID becomes text."""
    return json.loads(json.dumps(said, default=str))


class Answers:
    """Recorded answers of Kafka in the place of a live one."""

    def __init__(self) -> None:
        found = json.loads(lzma.decompress(RECORDED.read_bytes()))
        self.versions = {int(key): tuple(range_) for key, range_ in found["versions"].items()}
        self._said: dict[str, Any] = found["said"]

    def said(self, case: str) -> Any:
        """Kafka's answer in this case."""
        if case not in self._said:
            raise LookupError(f"{RECORDED.name} lacks the case {case!r}: record the answers anew")
        return self._said[case]

    def twin(self) -> Answers:
        """Does nothing: there is no connection."""
        return self

    def warm_up(self) -> None:
        """See Peer: nothing has to start."""


def record(kafka: Peer, *, keep: bool) -> None:
    """Write the answers of a live Kafka; ``keep``: also keep the recorded answers of other
    cases.
    """
    said = json.loads(lzma.decompress(RECORDED.read_bytes()))["said"] if keep else {}
    said |= kafka.noted
    found = {"versions": kafka.versions, "said": dict(sorted(said.items()))}
    text = json.dumps(found, separators=(",", ":"))
    RECORDED.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
