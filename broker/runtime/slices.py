"""Long loops in small pieces: other work on the event loop has its turn every 2 milliseconds."""

from __future__ import annotations

import asyncio
from time import monotonic

__all__ = ["Slices"]

SLICE_S = 0.002


class Slices:
    """The turns of one long piece of work."""

    def __init__(self) -> None:
        self._end = monotonic() + SLICE_S

    async def breathe(self) -> None:
        """Called after each small piece."""
        if monotonic() >= self._end:
            await asyncio.sleep(0)
            self._end = monotonic() + SLICE_S
