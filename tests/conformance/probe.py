"""Asks a kstore broker and a real Kafka the same requests and compares the answers structurally.

`python -m tests.conformance.probe` starts both, runs every case at every version that both serve,
and prints each difference; `--only PART` restricts to cases whose name holds PART, and `--accepted`
shows the known differences too (probes/accepted.py says why each is there). Ids, hosts, session
numbers and the words of error messages are not compared; records are, byte for byte.
"""

from __future__ import annotations

import argparse
import re
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from kstore.protocol.registry import APIS
from tests.conformance import wire
from tests.conformance.kafka_broker import KafkaBroker
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.probes import CASES
from tests.conformance.probes.accepted import ACCEPTED
from tests.conformance.probes.story import Difference, Peer, run_case

__all__ = ["SAME_SETTINGS", "accepted", "compare"]


def raw_answer(peer: Peer, frame: bytes) -> str:
    """Whether a raw frame is answered, or the connection closed."""
    peer.reset()
    try:
        return "answered" if peer.exchange(frame) else ""
    except (wire.WireError, ConnectionError):
        return "closed"
    except TimeoutError:
        return "no answer"
    finally:
        peer.reset()


_RAW = {
    "an unknown API key": wire.request_frame(9999, 0, b""),
    "a version of Produce that is not": wire.request_frame(0, 99, b"\x00" * 20, flexible=True),
    "a truncated Metadata request": wire.request_frame(3, 1, struct.pack(">i", 5)),
    "an array longer than its frame": wire.request_frame(3, 1, struct.pack(">i", 1 << 30)),
    "a frame of negative size": struct.pack(">i", -5),
    "a frame larger than allowed": struct.pack(">i", 2_000_000_000) + b"GET ",
    "trailing bytes after a Metadata request": wire.request_frame(
        3, 1, struct.pack(">i", 0) + b"x"
    ),
}


def compare(kafka: Peer, kstore: Peer, only: str = "") -> list[Difference]:
    """All differences of all cases, the accepted ones included."""
    for peer in (kafka, kstore):
        peer.warm_up()
    found = [difference for difference in _versions(kafka, kstore) if only in difference.case]
    for name, frame in _RAW.items():
        said = [raw_answer(peer, frame) for peer in (kafka, kstore)]
        if only in name and said[0] != said[1]:
            found.append(Difference(name, -1, "bytes", *said))
    for case in CASES:
        if only in case.name:
            found += run_case(case, kafka, kstore)
    return found


def _versions(kafka: Peer, kstore: Peer) -> Iterator[Difference]:
    for key, (low, high) in kstore.versions.items():
        theirs = kafka.versions.get(key)
        if theirs is None or not theirs[0] <= low <= high <= theirs[1]:
            yield Difference("ApiVersions ranges", -1, str(APIS.get(key, key)), theirs, (low, high))


def accepted(difference: Difference, table: Mapping[str, str]) -> str | None:
    """The reason why a difference is as it should be, if there is one."""
    text = str(difference)
    return next((why for pattern, why in table.items() if re.search(pattern, text)), None)


def main() -> int:
    """Starts both brokers, prints the differences; 1 when there are any that are not accepted."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.probe")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--accepted", action="store_true", help="show accepted differences too")
    asked = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kstore-probe-")))
        kafka = stack.enter_context(KafkaBroker(folder / "kafka"))
        kstore = stack.enter_context(KstoreBroker(folder / "kstore", overrides=SAME_SETTINGS))
        found = compare(
            Peer("kafka", kafka.host, kafka.port),
            Peer("kstore", kstore.host, kstore.port),
            asked.only,
        )
    unexplained = 0
    for difference in found:
        why = accepted(difference, ACCEPTED)
        unexplained += why is None
        if why is None or asked.accepted:
            print(difference, f"[accepted: {why}]" if why else "")
    print(f"{len(found)} differences, {unexplained} not accepted")
    return 1 if unexplained else 0


# What kstore is told so that both brokers are set up alike.
SAME_SETTINGS = {
    "broker.id": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "true",
}


if __name__ == "__main__":
    sys.exit(main())
