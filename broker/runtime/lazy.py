"""Parts that are made at their first use: a plain broker starts without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Lazy"]

T = TypeVar("T")


class Lazy(Generic[T]):
    """A part, or how it is made."""

    __slots__ = ("_begin", "_make", "made")

    def __init__(self, make: Callable[[], T], begin: Callable[[T], object] | None = None) -> None:
        """``make`` makes the part. ``begin`` is called with it once others can have it, for a part
        that asks for itself when it begins.
        """
        self._make = make
        self._begin = begin
        self.made: T | None = None
        """The part if it is made, else None. For who only looks, or closes it."""

    def __call__(self) -> T:
        """The part; the first call makes it."""
        if self.made is None:
            self.made = self._make()
            if self._begin is not None:
                self._begin(self.made)
        return self.made

    def forget(self) -> None:
        """The next call makes another one."""
        self.made = None
