"""Loads a file into a topic through an unmodified Kafka client, reads it back, and compares every
record.

The client is confluent-kafka (librdkafka), without any code of kstore, so a run proves what the
broker stores and serves. The job appends: if you load a file twice, the topic has it twice, and the
second copy is compared.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.pipeline.jobs.progress import Progress
from kstore.pipeline.jobs.source_file import SourceError, SourceFile, SourceRecord, open_source

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer

__all__ = ["LoadError", "LoadResult", "load", "main", "print_result"]

MAX_RECORD_BYTES = 16 * 2**20
_BATCH_OVERHEAD_BYTES = 1024
_TIMEOUT_S = 30.0
_POLL_EVERY = 500


class LoadError(Exception):
    """The load failed, or the result differs; the message says where."""


class LoadResult(NamedTuple):
    """What was loaded and compared, and how long it took."""

    source: str
    topic: str
    records: int
    value_bytes: int
    first_offset: int
    end_offset: int
    produce_s: float
    read_s: float
    first_key: str
    last_key: str

    @property
    def megabytes(self) -> float:
        """The size of all keys and values, in MB of a million bytes."""
        return self.value_bytes / 1e6


def load(
    bootstrap: str, source: SourceFile, topic: str | None = None, *, quiet: bool = False
) -> LoadResult:
    """Produce every record of ``source``, read it back and compare key, value, order and count.

    Raises LoadError if the broker refuses a record or returns something different, and SourceError
    if the file can't be read.
    """
    topic = topic or source.topic
    _ensure_topic(bootstrap, topic)
    consumer = _consumer(bootstrap)
    try:
        _, end_before = _watermarks(consumer, topic)
        began = time.monotonic()
        with Progress("loading", source.size_bytes, quiet) as progress:
            sent = _produce(bootstrap, source, topic, progress)
        produce_s = time.monotonic() - began
        _, end = _watermarks(consumer, topic)
        if end - end_before != sent.count:
            raise LoadError(
                f"{topic} grew from {end_before} to {end}, by {end - end_before} records; "
                f"{sent.count} were sent "
                "(does another program write to it?)"
            )
        began = time.monotonic()
        with Progress("reading back", source.size_bytes, quiet) as progress:
            _compare(consumer, topic, end_before, source, sent, progress)
        read_s = time.monotonic() - began
    finally:
        consumer.close()
    return LoadResult(
        str(source.path), topic, sent.count, sent.size_bytes, end_before, end, produce_s, read_s,
        sent.first_key, sent.last_key,
    )  # fmt: skip


class _Sent:
    """What was sent: counts, and a digest that shows a change of the file between the two
    readings.
    """

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0
        self.first_key = ""
        self.last_key = ""
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, record: SourceRecord) -> None:
        """Count one record."""
        if not self.count:
            self.first_key = record.key.decode("utf-8", "replace")
        self.last_key = record.key.decode("utf-8", "replace")
        self.count += 1
        self.size_bytes += len(record.key) + len(record.value)
        self._digest.update(b"%d %d " % (len(record.key), len(record.value)))
        self._digest.update(record.value)

    def digest(self) -> bytes:
        """The digest of everything added so far."""
        return self._digest.digest()


def _client_settings(bootstrap: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "log_level": 2}


def _ensure_topic(bootstrap: str, topic: str) -> None:
    """Create the topic with one partition, so that the order can be compared. An existing topic
    must have one.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient(_client_settings(bootstrap))
    try:
        known = admin.list_topics(timeout=_TIMEOUT_S).topics
        if topic not in known:
            limit = str(MAX_RECORD_BYTES + _BATCH_OVERHEAD_BYTES)
            new = NewTopic(
                topic, num_partitions=1, replication_factor=1, config={"max.message.bytes": limit}
            )
            admin.create_topics([new])[topic].result(_TIMEOUT_S)
            return
    except KafkaException as error:
        raise LoadError(f"the broker at {bootstrap} can't be used: {error.args[0].str()}") from None
    partitions = len(known[topic].partitions)
    if partitions != 1:
        raise LoadError(
            f"the topic {topic} has {partitions} partitions; the job compares the order of all "
            "records and needs one: "
            "choose another topic with --topic"
        )


def _consumer(bootstrap: str) -> Consumer:
    from confluent_kafka import Consumer

    return Consumer(
        _client_settings(bootstrap)
        | {"group.id": "kstore-load", "enable.auto.commit": False, "auto.offset.reset": "error"}
        | {"fetch.message.max.bytes": MAX_RECORD_BYTES}
    )


def _watermarks(consumer: Consumer, topic: str) -> tuple[int, int]:
    from confluent_kafka import KafkaException, TopicPartition

    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_TIMEOUT_S)
    except KafkaException as error:
        raise LoadError(f"the offsets of {topic} can't be read: {error.args[0].str()}") from None
    return low, high


def _produce(bootstrap: str, source: SourceFile, topic: str, progress: Progress) -> _Sent:
    from confluent_kafka import KafkaException, Producer

    producer = Producer(
        _client_settings(bootstrap)
        | {"enable.idempotence": True, "linger.ms": 5, "message.max.bytes": MAX_RECORD_BYTES}
        | {"delivery.report.only.error": True}
    )
    sent = _Sent()
    refused: list[str] = []

    def on_delivery(error: Any, message: Message) -> None:
        if error is not None and not refused:
            refused.append(f"the broker refused a record of {topic}: {error.str()}")

    try:
        for record in source.records():
            if len(record.key) + len(record.value) > MAX_RECORD_BYTES - _BATCH_OVERHEAD_BYTES:
                raise LoadError(
                    f"{source.path} line {record.line} is {len(record.value):,} bytes; one record"
                    " may have "
                    f"{MAX_RECORD_BYTES:,}: split the line"
                )
            _send(producer, topic, record, on_delivery)
            sent.add(record)
            progress.show(sent.size_bytes, sent.count)
            if sent.count % _POLL_EVERY == 0:
                producer.poll(0)
            if refused:
                raise LoadError(refused[0])
        if producer.flush(_TIMEOUT_S):
            raise LoadError(f"{len(producer)} records were not acknowledged in {_TIMEOUT_S:.0f} s")
    except KafkaException as error:
        raise LoadError(f"the client failed: {error.args[0].str()}") from None
    finally:
        producer.purge()
    if refused:
        raise LoadError(refused[0])
    return sent


def _send(
    producer: Producer,
    topic: str,
    record: SourceRecord,
    on_delivery: Callable[[Any, Message], None],
) -> None:
    """Pass one record to the client; waits while its queue is full."""
    while True:
        try:
            producer.produce(topic, record.value, record.key, partition=0, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _compare(
    consumer: Consumer, topic: str, offset: int, source: SourceFile, sent: _Sent, progress: Progress
) -> None:
    """Read from ``offset`` on and compare every record with the file, which is read a second
    time.
    """
    from confluent_kafka import TopicPartition

    consumer.assign([TopicPartition(topic, 0, offset)])
    again = _Sent()
    arriving = _arriving(consumer, topic, sent.count)
    for record in source.records():
        message = next(arriving, None)
        if message is None:
            break
        if (message.offset(), message.key(), message.value()) != (offset, record.key, record.value):
            raise LoadError(_difference(message, offset, record, source))
        offset += 1
        again.add(record)
        progress.show(again.size_bytes, again.count)
    if again.digest() != sent.digest() or next(arriving, None) is not None:
        raise LoadError(f"{source.path} changed while it was loaded; load it again")


def _arriving(consumer: Consumer, topic: str, count: int) -> Iterator[Message]:
    """Yield the next ``count`` records; raises LoadError if none arrives for too long."""
    while count > 0:
        # The client waits until it has as many as it is asked for, so never ask for more.
        messages = consumer.consume(min(count, 1000), timeout=_TIMEOUT_S)
        if not messages:
            raise LoadError(
                f"{topic} returned no record for {_TIMEOUT_S:.0f} s; {count} are missing"
            )
        for message in messages:
            error = message.error()
            if error is not None:
                raise LoadError(f"{topic} can't be read: {error.str()}")
            yield message
            count -= 1


def _difference(message: Message, offset: int, record: SourceRecord, source: SourceFile) -> str:
    where = f"the topic differs from {source.path} line {record.line}"
    if message.offset() != offset:
        return f"{where}: it has offset {message.offset()} and should have {offset}"
    if message.key() != record.key:
        return f"{where}: at offset {offset} the key is {message.key()!r}, sent was {record.key!r}"
    value = message.value() or b""
    same = next(
        (i for i, (a, b) in enumerate(zip(value, record.value, strict=False)) if a != b),
        min(len(value), len(record.value)),
    )
    return (
        f"{where}: at offset {offset} the value of {len(value)} bytes differs from the "
        f"{len(record.value)} sent at "
        f"byte {same}"
    )


def print_result(result: LoadResult, *, as_json: bool) -> None:
    """Print the result as text or as one JSON object."""
    if as_json:
        print(json.dumps(result._asdict()), flush=True)
        return
    last = result.end_offset - 1
    size = f"{result.megabytes:,.1f} MB"
    for label, text in (
        ("Loaded", f"{result.source} into topic {result.topic}"),
        ("Records", f"{result.records:,} ({size}), offsets {result.first_offset} to {last}"),
        ("Keys", f"{result.first_key} ... {result.last_key}"),
        ("Produced", _rate(result, result.produce_s)),
        ("Read back", _rate(result, result.read_s)),
        ("Compared", "every record: key, value, offset and count are equal"),
    ):
        print(f"{label:<9} {text}", flush=True)


def _rate(result: LoadResult, seconds: float) -> str:
    seconds = max(seconds, 1e-9)
    records, megabytes = result.records / seconds, result.megabytes / seconds
    return f"in {seconds:.2f} s: {records:,.0f} records/s, {megabytes:,.1f} MB/s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m kstore.pipeline.jobs.load``; returns the exit code."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="kstore pipeline load", description=(__doc__ or "").splitlines()[0],
        epilog="example: kstore pipeline load --file server.log --bootstrap-server localhost:9092",
    )  # fmt: skip
    parser.add_argument("--bootstrap-server", default="localhost:9092", help="the broker's address")
    parser.add_argument("--file", help="a text file; by default the Debian package list")
    parser.add_argument("--topic", help="the topic; by default named after the file")
    parser.add_argument("--json", action="store_true", help="write the result as JSON")
    given = parser.parse_args(arguments)
    try:
        result = load(given.bootstrap_server, open_source(given.file), given.topic)
    except (LoadError, SourceError) as error:
        print(f"kstore: {error}", file=sys.stderr)
        return 1
    except ImportError:
        print("kstore: the job needs confluent-kafka: pip install 'kstore[run]'", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print_result(result, as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
