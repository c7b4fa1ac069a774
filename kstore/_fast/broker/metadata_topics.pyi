"""The topics of a Metadata response, encoded from the image's entries; see metadata_topics.pyx."""

from collections.abc import Container, Iterable, Sequence
from typing import Any

def encode_topics(
    topics: Sequence[Any],
    errors: Sequence[int] | None,
    version: int,
    operations: int | list[int],
    alive: set[int] | None = None,
    brokers: Container[int] = (),
    *,
    epochs: bool = False,
) -> bytes:
    """The `topics` array of MetadataResponse in a version.

    A topic is a TopicImage, or a tuple of only name (or None) and id, whose error is in ``errors``
    (None: no errors). ``alive`` are the brokers that the client can reach: other replicas are
    reported as offline, and other leaders as missing. ``brokers`` are all live brokers. ``epochs``:
    with partition epochs (KIP-232). ``operations`` are those of every topic, or a list with those
    of each. Raises ValueError for a null name before version 12.
    """

def first_led_by(topics: Iterable[Any], nodes: set[int]) -> tuple[str, int] | None:
    """(name, partition) of the first partition of these TopicImages that one of the nodes leads;
    None if there is none.
    """
