"""Each API answers a user with one right as a real Kafka with its StandardAuthorizer does: what is
refused, on which level, with which error, and what is hidden.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from kstore.protocol.registry import APIS
from tests.conformance.kafka_broker import KafkaBroker
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.probe import KSTORE_SETTINGS, SAME_SETTINGS
from tests.conformance.probes.compare import differences
from tests.conformance.probes.half_allowed import QUESTIONS, make
from tests.conformance.probes.rights import ASKED, Ask, answers, answers_to
from tests.conformance.probes.secured import REFUSED_MOSTLY, SecuredPeer, grant, secure

WORKERS = 4
NO_WORDS = r".*\.?error_message: Kafka (None, kstore '<some>'|'<some>', kstore None)"
ACCEPTED = {
    rf"\w+ v\d+ by \w+, .*: {NO_WORDS}": "who is refused is told so in words, who is not is not",
    r"(AddPartitionsToTxn|OffsetDelete) v\d .*: (topics|results_by_transaction): Kafka \[\]":
        "beside the error of the whole answer, each row has it",
    r"(Share(Fetch|Acknowledge)|(Alter|Delete)ShareGroupOffsets) v\d .*: responses: Kafka \[\]":
        "beside the error of the whole answer, each row has it",
    r"ShareGroupHeartbeat v1 .*error_code: Kafka 42, kstore 29":
        "the right to a topic is asked for before the request's fields are judged",
    r"AlterShareGroupOffsets v0 .*topic_id: Kafka '<some>', kstore UUID":
        "who may not see a topic is not told its id",
    r"ListPartitionReassignments .*: topics: Kafka \{.*, kstore \[\]":
        "a refusal does not repeat what was asked for",
    r"DescribeClientQuotas .*: entries: Kafka None, kstore \[\]": "no entries beside an error",
    r"DescribeUserScramCredentials .*: results: Kafka \[\{'user': ''.*, kstore \[\]":
        "Kafka has a row for a user without a name",
    r"DescribeTransactions .*producer_epoch: Kafka 0, kstore -1": "unknown is -1",
    r"DescribeLogDirs v1 .*: results: Kafka \[\], kstore \[\{'error_code': 31":
        "versions without an error of their own have it in a row, instead of an empty answer",
    r"(DescribeQuorum|DescribeLogDirs) v\d by cluster_": "each broker's own offsets, times, sizes",
    r"Fetch v\d+ by .*\.records: Kafka '\d+ bytes": "see probes/accepted.py",
    r"EndTxn v\d by txn_write\w*, .*: (error_code: Kafka 51|producer_(epoch|id): Kafka -1)":
        "Kafka answers before its markers are written, so the next EndTxn may come too early",
    r"ConsumerGroupDescribe .*subscribed_topic_names\[": "a set, in no order",
}  # fmt: skip
"""Differences that are meant: a pattern of the difference's line, and the reason."""


@contextmanager
def _brokers(folder: Path) -> Iterator[list[SecuredPeer]]:
    kafka, kstore = KafkaBroker(folder / "kafka"), KstoreBroker(folder / "kstore")
    kstore.overrides |= KSTORE_SETTINGS
    for broker in (kafka, kstore):
        broker.overrides |= SAME_SETTINGS
    ports = {broker: secure(broker) for broker in (kafka, kstore)}
    with kafka, kstore:
        yield [
            SecuredPeer(name, broker.host, broker.port, ports[broker])
            for name, broker in (("kafka", kafka), ("kstore", kstore))
        ]


def _questions(kafka: SecuredPeer, kstore: SecuredPeer) -> Iterator[Ask]:
    for key in ASKED:
        if key not in kafka.versions:
            continue
        ranges = [kafka.versions[key], kstore.versions[key]]
        ranges.append((APIS[key].min_version, APIS[key].max_version))
        first, last = max(low for low, _ in ranges), min(high for _, high in ranges)
        yield partial(answers, api_key=key, version=last)
        if first < last:
            yield partial(answers, api_key=key, version=first, users=REFUSED_MOSTLY)
    for question in QUESTIONS:
        yield partial(answers_to, question=question)


def _differences(kafka: SecuredPeer, kstore: SecuredPeer) -> list[str]:
    own = threading.local()

    def run(ask: Ask) -> list[str]:
        if not hasattr(own, "peers"):
            own.peers = (kafka.twin(), kstore.twin())
        theirs, ours = (dict(ask(peer)) for peer in own.peers)
        assert theirs.keys() == ours.keys()
        return [
            f"{asked}: {path}: Kafka {one!r}, kstore {other!r}"
            for asked in theirs
            for path, one, other in differences(theirs[asked], ours[asked])
        ]

    with ThreadPoolExecutor(WORKERS) as pool:
        return [line for lines in pool.map(run, _questions(kafka, kstore)) for line in lines]


def _unexplained(found: list[str], accepted: Mapping[str, str]) -> list[str]:
    return [line for line in found if not any(re.match(each, line) for each in accepted)]


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("kafka_jars")
def test_who_has_one_right_is_answered_as_by_kafka(tmp_path):
    with _brokers(tmp_path) as peers:
        for peer in peers:
            peer.warm_up()
            grant(peer)
            make(peer)
        unexplained = _unexplained(_differences(*peers), ACCEPTED)
    assert not unexplained, "\n".join(line[:400] for line in unexplained[:60])
