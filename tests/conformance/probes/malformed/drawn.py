"""Requests with a structure from a seed: arrays of several elements, some of them twice, existing
and missing topics and partitions, and random versions. Every API gets some. bent.py changes single
fields.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from kstore.protocol.logs.fetch import FetchableTopicResponse, FetchResponse
from kstore.protocol.registry import APIS
from tests.conformance.probes.compare import Difference
from tests.conformance.probes.malformed.bent import Maker, ask_both, units
from tests.conformance.probes.malformed.encoding import tree
from tests.conformance.probes.peer import Peer
from tests.conformance.probes.recorded.answers import Answers
from tests.conformance.probes.seeds import Shape, Unit, seed
from tests.conformance.probes.topics import UNKNOWN_ID

RECORDED_SEED = 0
"""The one whose answers are in the file."""
REQUESTS = 12
"""Of each API and version."""
PARTITIONS = {"partition", "partition_index", "partition_indexes", "partitions", "index"}
TWO_TOPICS = {19, 20}
"""CreateTopics and DeleteTopics: what they name is theirs alone."""
LAST_VERSION = {24: 3}
"""AddPartitionsToTxn 4+ is brokers'; Kafka does not answer an empty one."""
NOT_DRAWN = {
    27: "WriteTxnMarkers: brokers send it, and Kafka does not answer what is named twice",
    33: "AlterConfigs: Kafka does not answer what is named twice; 44 is drawn",
    83: "InitializeShareGroupState, and those up to 87: brokers send them, and name each once",
    84: "",
    85: "",
    86: "",
    87: "",
    90: "DescribeShareGroupOffsets: Kafka fails, or does not answer, for unknown partitions",
}


class Drawn(Shape):
    """The structure of one request."""

    def __init__(self, unit: Unit, draw: random.Random) -> None:
        self._unit = unit
        self._draw = draw

    def elements(self, make: Callable[[], Any]) -> list[Any]:
        """Up to three, and sometimes one of them twice."""
        found = [make() for _ in range(self._draw.choice([0, 1, 1, 1, 2, 2, 3]))]
        if found and self._draw.random() < 0.25:
            found.insert(self._draw.randint(0, len(found)), self._draw.choice(found))
        return found

    def leaf(self, name: str, value: Any) -> Any:
        """Names and indexes, more often of existing resources than of missing ones."""
        unit, choice = self._unit, self._draw.choice
        if name in PARTITIONS and isinstance(value, int):
            return choice([0, 0, 0, 1, 1, 7, -1])
        if isinstance(value, str) and value == unit.fresh:
            return f"{value}-{choice('ab')}" if unit.api_key in TWO_TOPICS else value
        if isinstance(value, str) and value in (unit.topic, unit.group):
            return choice([value, value, value, f"{unit.name}-absent"])
        if isinstance(value, uuid.UUID) and value == unit.topic_id:
            return choice([value, value, value, UNKNOWN_ID])
        return value


def _by_topic(answer: Any) -> Any:
    """A Fetch answer with one entry for each topic. kstore answers in the order of the request and
    Kafka puts errors last, so the partitions of a topic may be apart there.
    """
    if isinstance(answer, FetchResponse):
        entries: dict[tuple[str, bool], FetchableTopicResponse] = {}
        for entry in answer.responses:
            known = entries.setdefault((entry.topic, entry.topic_id == UNKNOWN_ID), entry)
            if known is not entry:
                known.partitions += entry.partitions
        answer.responses = [entries[key] for key in sorted(entries)]
    return answer


def _request(seed_number: int, number: int) -> Maker:
    def make(unit: Unit) -> bytes:
        draw = random.Random(f"{seed_number} {unit.api_key} {unit.version} {number}")
        return tree(seed(unit, Drawn(unit, draw)), unit.version).to_bytes()

    return make


def draw_units(kafka: Peer | Answers, kstore: Peer, seed_number: int) -> Iterator[tuple[int, int]]:
    """Each API at two versions from a seed."""
    served: dict[int, list[int]] = {}
    for key, version in units(kafka, kstore, every_version=True):
        served.setdefault(key, []).append(version)
    for key in sorted(served.keys() - NOT_DRAWN.keys()):
        versions = [each for each in served[key] if each <= LAST_VERSION.get(key, each)]
        draw = random.Random(f"{seed_number} {key}")
        for version in sorted(draw.sample(versions, min(2, len(versions)))):
            yield key, version


def probe_drawn(
    seed_number: int, api_key: int, version: int, kafka: Peer | Answers, kstore: Peer
) -> Iterator[Difference]:
    """Send the requests of a seed for an API at a version to both brokers."""
    unit = Unit(kstore, api_key, version, "pd")
    requests = [(f"request {n}", _request(seed_number, n)) for n in range(REQUESTS)]
    return ask_both(kafka, unit, f"drawn {APIS[api_key].name}", requests, seen=_by_topic)
