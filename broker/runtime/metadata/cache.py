"""Kafka's MetadataCache: holds the metadata image of now, and tells that it is another.

The image is a value. Who decides by it takes `image` once, and sees no change while it decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from kstore.broker.state.metadata.image import BrokerImage, MetadataImage

__all__ = ["MetadataCache"]

NAMED_S = 10.0
"""How long clients are still told of a broker that is gone. In Kafka too it takes such a time until
a broker that was killed is missing in metadata, and clients rely on it: librdkafka 2 waits without
end to send a transaction's offsets to a coordinator that is missing before it asked for another.
"""


class MetadataCache:
    """The image, replaced as a whole."""

    def __init__(self, image: MetadataImage, on_change: Callable[[], None]) -> None:
        """``on_change`` is called after each replacement: pre-encoded answers are forgotten."""
        self._image = image
        self._on_change = on_change

    @property
    def image(self) -> MetadataImage:
        """What this broker knows of the cluster now."""
        return self._image

    def publish(self, image: MetadataImage) -> None:
        """From now on this is known. Nothing happens if it is the image that is held already."""
        if image is self._image:
            return
        changed = image.version != self._image.version
        self._image = image
        if changed:
            self._on_change()

    def forget_departed_later(self, loop: AbstractEventLoop) -> None:
        """Name brokers that have just gone to clients for some time yet; they lead nothing any
        more.
        """
        for node in self._image.departed.values():
            loop.call_later(NAMED_S, self._forget_departed, node)

    def _forget_departed(self, node: BrokerImage) -> None:
        self.publish(self._image.without_departed(node))
