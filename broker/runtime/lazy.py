"""Parts that are created on first use: a single broker starts without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Lazy"]

T = TypeVar("T")


class Lazy(Generic[T]):
    """A part that is created on first use."""

    __slots__ = ("_begin", "_make", "made")

    def __init__(self, make: Callable[[], T], begin: Callable[[T], object] | None = None) -> None:
        """``make`` creates the part. ``begin`` is called with the part once this object returns it,
        so that ``begin`` may use this object, too.
        """
        self._make = make
        self._begin = begin
        self.made: T | None = None
        """The part if it exists, else None. For callers that must not create it."""

    def __call__(self) -> T:
        """The part; the first call creates it."""
        if self.made is None:
            self.made = self._make()
            if self._begin is not None:
                self._begin(self.made)
        return self.made

    def forget(self) -> None:
        """Drop the part; the next call creates another one."""
        self.made = None
