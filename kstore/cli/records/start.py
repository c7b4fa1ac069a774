"""Where a command starts to read in its partitions (--offset and --from-timestamp), and whether
they exist.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kstore.cli.arguments import parse_datetime_ms
from kstore.cli.failure import FAILED, USAGE_ERROR, fail
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.clients import Consumer

__all__ = ["Start", "check_place", "parse_offset", "parse_start", "place"]

NEW_TOPIC_MS = 2000
_WORDS = {"beginning": "beginning", "earliest": "beginning", "end": "end", "latest": "end"}


class Start(NamedTuple):
    """A kind (beginning, end, offset, last or time) and its number."""

    kind: str
    number: int = 0

    @property
    def reset(self) -> str | None:
        """The auto.offset.reset that has the same effect on partitions without a committed
        offset.
        """
        return {"beginning": "earliest", "end": "latest"}.get(self.kind)


def parse_start(offset: str | None, moment: str | None) -> Start | None:
    """Parse --offset and --from-timestamp, of which one may be given; None for neither.

    Raises ValueError for both, or for a malformed one.
    """
    if moment is not None:
        if offset is not None:
            raise ValueError("--offset and --from-timestamp both set the start: use one of them")
        return Start("time", parse_datetime_ms(moment))
    return None if offset is None else parse_offset(offset)


def parse_offset(text: str) -> Start:
    """Parse --offset; raises ValueError if it is malformed."""
    if text in _WORDS:
        return Start(_WORDS[text])
    kind = {"-": "last", "@": "time"}.get(text[:1], "offset")
    digits = text if kind == "offset" else text[1:]
    if not digits.isascii() or not digits.isdigit():
        raise ValueError(f"--offset {text!r} is not earliest, latest, a number, -N or @MS")
    return Start(kind, int(digits))


def place(consumer: Consumer, partitions: Iterable[TopicPartition], start: Start) -> None:
    """Set the consumer's positions in these partitions to the start."""
    chosen = list(partitions)
    kind, number = start
    if not chosen:
        return
    if kind == "beginning":
        consumer.seek_to_beginning(*chosen)
    elif kind == "end":
        consumer.seek_to_end(*chosen)
    elif kind == "offset":
        for tp in chosen:
            consumer.seek(tp, number)
    elif kind == "last":
        first = consumer.beginning_offsets(chosen)
        for tp, end in consumer.end_offsets(chosen).items():
            consumer.seek(tp, max(end - number, first[tp]))
    else:
        ends = consumer.end_offsets(chosen)
        for tp, found in consumer.offsets_for_times(dict.fromkeys(chosen, number)).items():
            consumer.seek(tp, ends[tp] if found is None else found.offset)


def check_place(
    consumer: Consumer,
    topic: str,
    partitions: list[int] | None = None,
    *,
    if_no_topic: int = FAILED,
) -> None:
    """End the command soon if the topic or a partition does not exist. ``if_no_topic``: the exit
    code.
    """
    from kstore.errors import UnknownTopicOrPartitionError

    if topic not in consumer.topics():
        try:
            consumer.partitions_for(topic, timeout_ms=NEW_TOPIC_MS)  # new, or internal
        except UnknownTopicOrPartitionError:
            raise SystemExit(
                fail(
                    f"there is no topic {topic!r}: `kstore topic list` shows the topics",
                    if_no_topic,
                )
            ) from None
    count = len(consumer.partitions_for(topic))
    for number in partitions or ():
        if not 0 <= number < count:
            raise SystemExit(
                fail(f"topic {topic!r} has partitions 0 to {count - 1}, not {number}", USAGE_ERROR)
            )
