"""Kafka's MetadataCache: it holds the current metadata image and reports changes.

The image is an immutable value. A decision reads `image` once, so it sees one state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from kstore.broker.state.metadata.image import BrokerImage, MetadataImage

__all__ = ["MetadataCache"]

NAMED_S = 10.0
"""How long metadata still contains the address of a broker that has left. In Kafka, too, a killed
broker stays in the metadata for some time, and clients rely on it: if the coordinator disappears
from the metadata before librdkafka 2 looks for another one, it waits forever to send a
transaction's offsets.
"""


class MetadataCache:
    """The image, replaced as a whole."""

    def __init__(self, image: MetadataImage, on_change: Callable[[], None]) -> None:
        """``on_change`` is called after each replacement, to drop cached responses."""
        self._image = image
        self._on_change = on_change

    @property
    def image(self) -> MetadataImage:
        """The current metadata image."""
        return self._image

    def publish(self, image: MetadataImage) -> None:
        """Replace the image. Does nothing if it is the current one."""
        if image is self._image:
            return
        changed = image.version != self._image.version
        self._image = image
        if changed:
            self._on_change()

    def forget_departed_later(self, loop: AbstractEventLoop) -> None:
        """Keep the addresses of brokers that have just left for some time. They no longer lead
        anything.
        """
        for node in self._image.departed.values():
            loop.call_later(NAMED_S, self._forget_departed, node)

    def _forget_departed(self, node: BrokerImage) -> None:
        self.publish(self._image.without_departed(node))
