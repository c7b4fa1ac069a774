"""Sends the same requests to a kstore broker and a real Kafka, and compares the structure of the
responses.

`python -m tests.conformance.probe` starts both and prints each difference: between the API tables,
between the answers to stories (probes/story.py), to requests and frames that a machine made wrong
(probes/malformed/bent.py), and to requests whose structure is drawn from a seed (drawn.py; --seed).
`--only PART` restricts to cases whose name holds PART, `--full` bends every version instead of
those where an API's form changes, `--accepted` shows the known differences too (probes/accepted.py
says why each is there). `--recorded` takes Kafka's answers from the file that `--record` has
written, and starts no Kafka; `--record --only PART` writes those cases anew and keeps the others.
Ids, hosts, session numbers and the words of error messages are not compared; records are, byte for
byte.
"""

from __future__ import annotations

import argparse
import re
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from kstore.protocol.registry import APIS
from tests.conformance import wire
from tests.conformance.kafka_broker import KafkaBroker
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.probes import CASES
from tests.conformance.probes.accepted import ACCEPTED
from tests.conformance.probes.compare import Difference, together
from tests.conformance.probes.malformed import bent, drawn
from tests.conformance.probes.peer import Peer
from tests.conformance.probes.recorded.answers import Answers, record
from tests.conformance.probes.story import Case, run_case

# Settings of both brokers, so that they are set up alike.
SAME_SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",  # the records' times are in the past
}
# What KafkaBroker sets for every Kafka.
KSTORE_SETTINGS = {
    "broker.id": "1",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
WORKERS = 6

_RAW = {
    "an unknown API key": wire.request_frame(9999, 0, b""),
    "a version of Produce that is not": wire.request_frame(0, 99, b"\x00" * 20, flexible=True),
    "an empty frame": struct.pack(">i", 0),
    "a frame with half a header": struct.pack(">ihh", 4, 3, 1),
    "a frame of negative size": struct.pack(">i", -5),
    "a frame larger than allowed": struct.pack(">i", 2_000_000_000) + b"GET ",
    "a web browser": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40,
    "no client id": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0),
    "a client id of negative length": struct.pack(">ihhihi", 14, 3, 1, 1, -2, 0),
    "a client id longer than its frame": struct.pack(">ihhihi", 14, 3, 1, 1, 99, 0),
    "a client id that is no UTF-8": struct.pack(">ihhih", 12, 18, 0, 1, 2) + b"\xff\xfe",
}


def raw_answer(peer: Peer, frame: bytes) -> str:
    """Whether a raw frame is answered, or the connection closed."""
    peer.reset()
    try:
        return f"{len(peer.exchange(frame)) > 4} answer"
    except ConnectionError:
        return "closed"
    except TimeoutError:
        return "no answer"
    finally:
        peer.reset()


Kafka = Peer | Answers
"""A live one, or what it has answered."""
Task = Callable[[Kafka, Peer], Iterable[Difference]]


def _raw(name: str, frame: bytes, kafka: Kafka, kstore: Peer) -> Iterator[Difference]:
    if isinstance(kafka, Answers):
        theirs = kafka.said(name)
    else:
        theirs = kafka.noted[name] = raw_answer(kafka, frame)
    ours = raw_answer(kstore, frame)
    if theirs != ours:
        yield Difference(name, -1, "bytes", theirs, ours)


def _versions(kafka: Kafka, kstore: Peer) -> Iterator[Difference]:
    for key in sorted(kafka.versions.keys() | kstore.versions.keys()):
        theirs, ours = kafka.versions.get(key), kstore.versions.get(key)
        if theirs != ours:
            yield Difference("ApiVersions ranges", -1, str(APIS.get(key, key)), theirs, ours)


def _tasks(kafka: Kafka, kstore: Peer, full: bool, seed: int) -> Iterator[tuple[str, Task]]:
    """Everything to be asked, with the name that its differences begin with."""
    yield "ApiVersions ranges", _versions
    for name, frame in (*_RAW.items(), *bent.wrong_versions(kafka)):
        yield name, partial(_raw, name, frame)
    for key, version in bent.units(kafka, kstore, every_version=full):
        frames = full or version == kstore.versions[key][1]
        yield f"bent {APIS[key].name}", partial(_unit, key, version, frames)
    for case in CASES:
        if case.api_key in kafka.versions:
            yield case.name, partial(_story, case)
    for key, version in drawn.draw_units(kafka, kstore, seed):
        yield f"drawn {APIS[key].name}", partial(drawn.probe_drawn, seed, key, version)


def _unit(key: int, version: int, frames: bool, kafka: Kafka, kstore: Peer) -> Iterator[Difference]:
    return bent.probe_unit(kafka, kstore, key, version, frames=frames)


def _story(case: Case, kafka: Kafka, kstore: Peer) -> Iterator[Difference]:
    return run_case(case, kafka, kstore)


def compare(
    kafka: Kafka,
    kstore: Peer,
    wanted: Callable[[str], bool],
    *,
    full: bool = False,
    seed: int = drawn.RECORDED_SEED,
    workers: int = WORKERS,
) -> list[Difference]:
    """All differences of the wanted cases, the accepted ones included; equal ones of several
    versions are one.
    """
    for peer in (kafka, kstore):
        peer.warm_up()
    own = threading.local()

    def run(named: tuple[str, Task]) -> list[Difference]:
        if not hasattr(own, "peers"):
            own.peers = (kafka.twin(), kstore.twin())
        name, task = named
        try:
            return list(task(*own.peers))
        except Exception as error:  # noqa: BLE001 (one case's end is not the probe's: it is shown)
            for peer in own.peers:
                if isinstance(peer, Peer):
                    peer.reset()
            return [Difference(name, -1, "failed", None, repr(error))]

    tasks = [named for named in _tasks(kafka, kstore, full, seed) if wanted(named[0])]
    with ThreadPoolExecutor(workers) as pool:
        return together([row for rows in pool.map(run, tasks) for row in rows])


def _name(difference: Difference) -> str:
    """The name of the task that a difference comes from."""
    case = difference.case
    return case.partition(",")[0] if case.startswith(("bent ", "drawn ")) else case


@contextmanager
def _both(folder: Path, *, recorded: bool) -> Iterator[tuple[Kafka, Peer]]:
    with ExitStack() as started:
        theirs: Kafka
        if recorded:
            theirs = Answers()
        else:
            kafka = KafkaBroker(folder / "kafka", overrides=SAME_SETTINGS)
            started.enter_context(kafka)
            theirs = Peer("kafka", kafka.host, kafka.port)
        kstore = KstoreBroker(folder / "kstore", overrides=SAME_SETTINGS | KSTORE_SETTINGS)
        started.enter_context(kstore)
        yield theirs, Peer("kstore", kstore.host, kstore.port)


def probe(
    folder: Path,
    only: str = "",
    *,
    full: bool = False,
    seed: int = drawn.RECORDED_SEED,
    recorded: bool = False,
    write: bool = False,
) -> list[Difference]:
    """Starts both brokers and compares them. The cases with differences that are not accepted are
    asked once more, of new brokers and one after the other: what was only a matter of time, on
    either side, is not found again and left out. ``recorded``: without a live Kafka; ``write``: a
    live Kafka's answers are recorded.
    """
    with _both(folder / "first", recorded=recorded) as peers:
        found = compare(*peers, lambda name: only in name, full=full, seed=seed)
    noted = peers[0].noted if isinstance(peers[0], Peer) else {}
    doubtful = {_name(row) for row in found if accepted(row, ACCEPTED) is None}
    if doubtful:
        with _both(folder / "second", recorded=recorded) as peers:
            again = compare(*peers, lambda name: name in doubtful, full=full, seed=seed, workers=1)
        found = [row for row in found if _name(row) not in doubtful] + again
    if write and isinstance(peers[0], Peer):
        peers[0].noted = noted | peers[0].noted
        record(peers[0], keep=bool(only))
    return found


def accepted(difference: Difference, table: Mapping[str, str]) -> str | None:
    """The pattern that accepts a difference, if there is one."""
    text = str(difference)
    return next((pattern for pattern in table if re.search(pattern, text)), None)


def main() -> int:
    """Starts both brokers, prints the differences; 1 when there are any that are not accepted."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.probe")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--full", action="store_true", help="bend every version of every API")
    parser.add_argument(
        "--seed", type=int, default=drawn.RECORDED_SEED, help="of the structures that are drawn"
    )
    parser.add_argument("--accepted", action="store_true", help="show accepted differences too")
    parser.add_argument("--recorded", action="store_true", help="Kafka's answers from their file")
    parser.add_argument("--record", action="store_true", help="write Kafka's answers to their file")
    options = parser.parse_args()
    if (options.record or options.recorded) and options.seed != drawn.RECORDED_SEED:
        parser.error(f"answers are recorded of seed {drawn.RECORDED_SEED}")
    if options.record and (options.full or options.recorded):
        parser.error("--record asks a live Kafka: give it alone, or with --only")
    with tempfile.TemporaryDirectory(prefix="kstore-probe-") as folder:
        found = probe(
            Path(folder),
            options.only,
            full=options.full,
            seed=options.seed,
            recorded=options.recorded,
            write=options.record,
        )
    unexplained = 0
    for difference in found:
        why = accepted(difference, ACCEPTED)
        unexplained += why is None
        if why is None or options.accepted:
            print(f"{difference!s:.1500}", f"[accepted: {ACCEPTED[why]}]" if why else "")
    print(f"{len(found)} differences, {unexplained} not accepted")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
