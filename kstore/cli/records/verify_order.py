"""``kstore verify-order``: checks that records of one key have ascending numbers.

It reads a topic in the order of each partition's log, or as a consumer group; or it generates a
workload and reads it at the same time, while you expand the topic or kill brokers.
"""

from __future__ import annotations

import json as json_text
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kstore.cli.client_config import client_config
from kstore.cli.failure import FAILED, USAGE_ERROR
from kstore.cli.options import Json, ProfileName, Properties, Servers, Topic
from kstore.cli.progress import FIRST_LINE_S, HowFar, Progress
from kstore.cli.records.start import check_place
from kstore.clients.core.order_check import OrderChecker, OrderReport
from kstore.clients.core.order_fields import PLACES, HasFields, field_reader, number_of
from kstore.types import Header, TopicPartition

if TYPE_CHECKING:
    from kstore.clients import Consumer, ConsumerRecord

__all__ = ["EXAMPLE", "Workload", "verify_order"]

EXAMPLE = "Example: kstore verify-order orders --generate 100000 --partitioner ordered"
RUN_HEADER = "verify-order"
_POLL_MS = 500


_Key = Annotated[str, typer.Option("--key", help=f"Where the key is: {PLACES}.")]
_Number = Annotated[str, typer.Option("--number", help=f"Where its number is: {PLACES}.")]
_First = Annotated[
    int | None,
    typer.Option(help="The first number of each key; by default the first one that is read."),
]
_Group = Annotated[
    str | None,
    typer.Option(
        help="Check what this consumer group receives, and commit its offsets.",
    ),
]
_Generate = Annotated[
    int | None, typer.Option(min=1, help="Write this many records, and check them.")
]
_Keys = Annotated[int, typer.Option(min=1, help="How many keys to generate.")]
_Rate = Annotated[float | None, typer.Option(help="Generate at most this many records per second.")]
_Partitioner = Annotated[
    str,
    typer.Option(
        help="The partitioner for generated records; ordered keeps their order while a "
        "topic gets partitions."
    ),
]
_Idle = Annotated[int, typer.Option(help="Stop after this many milliseconds without a record.")]
_Duplicates = Annotated[
    bool, typer.Option("--allow-duplicates", help="Do not fail because of duplicates.")
]
_Gaps = Annotated[
    bool,
    typer.Option(
        "--allow-gaps",
        help="Do not fail because of missing numbers.",
    ),
]


def verify_order(
    topic: Topic,
    key: _Key = "key",
    number: _Number = "value",
    first: _First = None,
    group: _Group = None,
    generate: _Generate = None,
    keys: _Keys = 100,
    rate: _Rate = None,
    partitioner: _Partitioner = "ordered",
    idle_ms: _Idle = 10_000,
    allow_duplicates: _Duplicates = False,
    allow_gaps: _Gaps = False,
    isolation: Annotated[
        str, typer.Option(help="read_uncommitted or read_committed")
    ] = "read_committed",
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
    json: Json = False,
) -> None:
    """Check that the records of each key have ascending numbers, without duplicates and gaps.

    Exit code 0: all are in order; 1: some are not; 2: nothing could be checked.
    """
    try:
        reads = field_reader(key), field_reader(number)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    progress = Progress(json, first_event_s=FIRST_LINE_S)
    where = bootstrap, properties, profile
    settings = client_config("consumer", *where) | {
        "isolation.level": isolation,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": generate is not None,
    }
    if generate is not None:
        work = Workload(client_config("producer", *where), topic, generate, keys, rate, partitioner)
        checker = OrderChecker(first=0)
        _generated(
            work, checker, settings | {"group.id": group or f"verify-{work.run}"}, idle_ms, progress
        )
    elif group is not None:
        checker = OrderChecker(first=first)
        _as_group(topic, checker, reads, settings | {"group.id": group}, idle_ms, progress)
    else:
        checker = OrderChecker(by_partition=True, first=first)
        _as_it_lies(topic, checker, reads, settings, progress)
    progress.end()
    report = checker.report()
    print(json_text.dumps(_row(report)) if json else _text(report))
    good = report.is_good(duplicates_allowed=allow_duplicates, gaps_allowed=allow_gaps)
    if good and not report.records:
        print("kstore: no record has a key and a number; nothing was checked", file=sys.stderr)
        raise SystemExit(USAGE_ERROR)
    if not good:
        raise SystemExit(FAILED)


# ---- reading ----

Reads = tuple[Callable[[HasFields], bytes | None], Callable[[HasFields], bytes | None]]


def _see(checker: OrderChecker, reads: Reads, record: ConsumerRecord) -> None:
    key, number = reads[0](record), number_of(reads[1](record))
    if key is None or number is None:
        checker.unreadable()
    else:
        checker.see(key, number, TopicPartition(record.topic, record.partition), record.offset)


def _as_it_lies(
    topic: str, checker: OrderChecker, reads: Reads, settings: dict[str, Any], progress: Progress
) -> None:
    from kstore.clients import Consumer

    with Consumer(settings) as consumer:
        check_place(consumer, topic, if_no_topic=USAGE_ERROR)
        count = len(consumer.partitions_for(topic))
        consumer.assign([TopicPartition(topic, index) for index in range(count)])
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(consumer.assignment())
        to_read = sum(ends.values()) - sum(consumer.beginning_offsets(list(ends)).values())
        seen = 0
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            for record in consumer.poll(_POLL_MS):
                if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                    seen += 1
                    _see(checker, reads, record)
            progress.show(HowFar(seen, max(to_read - seen, 0)), {"records": seen})


def _as_group(
    topic: str, checker: OrderChecker, reads: Reads, settings: dict[str, Any], idle_ms: int,
    progress: Progress,
) -> None:  # fmt: skip
    from kstore.clients import Consumer

    with Consumer(settings) as consumer:
        check_place(consumer, topic, if_no_topic=USAGE_ERROR)
        consumer.subscribe([topic])
        see = partial(_see, checker, reads)
        _until_idle(consumer, see, lambda: False, idle_ms, progress)


def _until_idle(
    consumer: Consumer,
    see: Callable[[ConsumerRecord], None],
    done: Callable[[], bool],
    idle_ms: int,
    progress: Progress,
) -> None:
    last = time.monotonic()
    seen = 0
    while not done() and time.monotonic() - last < idle_ms / 1000:
        records = consumer.poll(_POLL_MS)
        if records:
            last = time.monotonic()
        for record in records:
            see(record)
        seen += len(records)
        progress.show(HowFar(seen, None), {"records": seen})


# ---- generating ----


class Workload:
    """Records whose keys have their own ascending numbers, as values; a header names the run."""

    def __init__(
        self, settings: dict[str, Any], topic: str, count: int, keys: int, rate: float | None,
        partitioner: str,
    ) -> None:  # fmt: skip
        self.run = uuid.uuid4().hex[:12]
        self.count = count
        self.topic = topic
        self.error: Exception | None = None
        self.is_written = False
        self._settings = {"linger.ms": 1, "metadata.max.age.ms": 1000} | settings
        self._settings["partitioner.class"] = partitioner
        self._keys, self._rate = keys, rate

    def write(self) -> None:
        """Write all records, and wait until they are acknowledged; `error` has what failed."""
        from kstore.clients import Producer
        from kstore.errors import KafkaError

        headers = [Header(RUN_HEADER, self.run.encode())]
        begin = time.monotonic()
        try:
            with Producer(self._settings) as producer:
                for place in range(self.count):
                    name, number = place % self._keys, place // self._keys
                    producer.send(self.topic, b"%d" % number, b"%d" % name, headers=headers)
                    if self._rate is not None:
                        wait = begin + place / self._rate - time.monotonic()
                        if wait > 0:
                            time.sleep(wait)
                producer.flush()
        except KafkaError as error:
            self.error = error
        self.is_written = True

    def wrote(self, record: HasFields) -> bool:
        """Whether a record belongs to this run."""
        run = self.run.encode()
        return any(h.key == RUN_HEADER and h.value == run for h in record.headers)


def _generated(
    work: Workload, checker: OrderChecker, settings: dict[str, Any], idle_ms: int,
    progress: Progress,
) -> None:  # fmt: skip
    from kstore.clients import Consumer

    reads = field_reader("key"), field_reader("value")

    def see(record: ConsumerRecord) -> None:
        if work.wrote(record):
            _see(checker, reads, record)

    def done() -> bool:
        return work.error is not None or (work.is_written and checker.numbers_seen() >= work.count)

    writer = threading.Thread(target=work.write, name="verify-order-writer", daemon=True)
    with Consumer(settings | {"metadata.max.age.ms": 1000}) as consumer:
        consumer.subscribe([work.topic])
        writer.start()
        _until_idle(consumer, see, done, idle_ms, progress)
    if work.error is not None:
        raise work.error


# ---- printing ----


def _row(report: OrderReport) -> dict[str, Any]:
    found = asdict(report)
    found["findings"] = [
        {
            "kind": finding.kind,
            "key": finding.key.decode("utf-8", "backslashreplace"),
            "number": finding.number,
            "until": finding.until,
            "after": finding.after,
            "topic": None if finding.tp is None else finding.tp.topic,
            "partition": None if finding.tp is None else finding.tp.partition,
            "offset": finding.offset,
        }
        for finding in report.findings
    ]
    return found


def _text(report: OrderReport) -> str:
    lines = [str(finding) for finding in report.findings]
    shown = report.out_of_order + report.duplicates + report.missing
    if shown > len(lines) > 0:
        lines.append("...")
    lines.append(
        f"{report.records} records of {report.keys} keys: {report.out_of_order} out of order "
        f"({report.keys_out_of_order} keys), {report.duplicates} duplicates, "
        f"{report.missing} missing"
        + (f"; {report.unreadable} without a key or a number" if report.unreadable else "")
    )
    return "\n".join(lines)
