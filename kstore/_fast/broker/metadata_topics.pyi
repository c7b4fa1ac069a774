"""The topics of a Metadata answer, encoded from the image's entries; see metadata_topics.pyx."""

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

    A topic is a TopicImage, or a tuple of name (or None) and id alone, whose error is in
    ``errors`` (None: there is none). ``alive`` are the brokers that the client can reach; with
    them, other replicas are told to be offline, and other leaders not at all. ``brokers`` are all
    that are alive. ``epochs``: with partition epochs (KIP-232). ``operations`` are those of every
    topic, or a list of each one's. ValueError for a null name before version 12.
    """

def first_led_by(topics: Iterable[Any], nodes: set[int]) -> tuple[str, int] | None:
    """(name, partition) of the first partition of these TopicImages that one of the nodes leads;
    None: there is none.
    """
