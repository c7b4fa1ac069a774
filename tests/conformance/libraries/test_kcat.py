"""kcat (librdkafka's command line, an older release than the Python one) against the broker."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.conformance.libraries.python_clients import PYTHON_CLIENTS
from tests.conformance.libraries.samples import BASE_TIMESTAMP_MS, CODECS, plain_samples
from tests.conformance.storage.stored import stored_codecs

pytestmark = pytest.mark.skipif(not shutil.which("kcat"), reason="no kcat: apt-get install kcat")


def kcat(bootstrap: str, *args: str, stdin: bytes = b"") -> bytes:
    """Runs kcat to its end and returns its stdout; a failure shows its stderr."""
    command = ["kcat", "-q", "-b", bootstrap, "-X", "check.crcs=true", *args]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout


def lines(sent) -> bytes:
    """kcat's input for -K '\\t' -Z: key, tab, value; an empty value is sent as null."""
    return b"".join(s.key + b"\t" + (s.value or b"") + b"\n" for s in sent)


def parsed(output: bytes) -> list[tuple[int, str, str | None, tuple[str, ...]]]:
    """kcat's JSON envelopes as (offset, key, value, headers)."""
    rows = [json.loads(line) for line in output.splitlines()]
    return [(r["offset"], r["key"], r["payload"], tuple(r.get("headers", ()))) for r in rows]


def expected(sent) -> list[tuple[int, str, str | None, tuple[str, ...]]]:
    """What `parsed` gives for records sent with the header h=v."""
    return [
        (offset, s.key.decode(), None if s.value is None else s.value.decode(), ("h", "v"))
        for offset, s in enumerate(sent)
    ]


@pytest.mark.parametrize("idempotent", ["false", "true"], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_back_what_it_sent(peer, topic, codec, idempotent):
    PYTHON_CLIENTS["confluent-kafka"](peer.bootstrap).create_topic(topic, 1)
    sent = plain_samples()
    produce = ["-P", "-t", topic, "-p", "0", "-K", "\t", "-Z", "-H", "h=v", "-z", codec]
    kcat(peer.bootstrap, *produce, "-X", f"enable.idempotence={idempotent}", stdin=lines(sent))
    output = kcat(peer.bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-J")
    assert parsed(output) == expected(sent)
    stored = stored_codecs(peer.log_dir, topic)
    # librdkafka leaves a batch alone that compression does not shrink.
    assert codec in stored
    assert stored <= {codec, "none"}


@pytest.mark.slow
def test_kcat_in_a_group_reads_all_partitions_once(peer, topic):
    PYTHON_CLIENTS["confluent-kafka"](peer.bootstrap).create_topic(topic, 3)
    sent = plain_samples()
    for partition in range(3):
        produce = ["-P", "-t", topic, "-p", str(partition), "-K", "\t", "-Z", "-H", "h=v"]
        kcat(peer.bootstrap, *produce, stdin=lines(sent))
    group = ["-G", f"g-{topic}", "-X", "auto.offset.reset=earliest"]
    output = kcat(peer.bootstrap, *group, "-c", str(3 * len(sent)), "-J", topic)
    assert sorted(parsed(output), key=str) == sorted(expected(sent) * 3, key=str)


def test_kcat_lists_the_brokers_topics_and_partitions(peer, topic):
    PYTHON_CLIENTS["confluent-kafka"](peer.bootstrap).create_topic(topic, 4)
    listed = json.loads(kcat(peer.bootstrap, "-L", "-J", "-t", topic))
    assert [broker["name"] for broker in listed["brokers"]] == [peer.bootstrap]
    (found,) = listed["topics"]
    assert found["topic"] == topic
    node = listed["brokers"][0]["id"]
    assert [
        (
            p["partition"],
            p["leader"],
            [r["id"] for r in p["replicas"]],
            [r["id"] for r in p["isrs"]],
        )
        for p in sorted(found["partitions"], key=lambda p: p["partition"])
    ] == [(index, node, [node], [node]) for index in range(4)]


def test_kcat_finds_offsets_by_timestamp(peer, topic):
    client = PYTHON_CLIENTS["confluent-kafka"](peer.bootstrap)
    client.create_topic(topic, 1)
    sent = [
        s._replace(timestamp_ms=BASE_TIMESTAMP_MS + 1000 * i) for i, s in enumerate(plain_samples())
    ]
    client.send(topic, sent)
    asked = kcat(peer.bootstrap, "-Q", "-t", f"{topic}:0:{sent[17].timestamp_ms - 500}")
    assert asked.split()[-1] == b"17"
