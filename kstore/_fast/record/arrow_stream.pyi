"""Arrow's C data and C stream interface, without any Arrow library: trees of buffers go out as
capsules that DuckDB, Polars, pyarrow and others import."""

from collections.abc import Iterable, Sequence
from typing import Any

from typing_extensions import Buffer

class Field:
    """A column's name, its type as Arrow's format string, and the fields in it."""

    name: bytes
    format: bytes
    children: tuple[Field, ...]
    nullable: bool
    def __init__(
        self, name: str, format: str, children: Iterable[Field] = (), *, nullable: bool = True
    ) -> None: ...

class Array:
    """Values in Arrow's layout: at most three buffers, None for a validity bitmap where none is
    null. A record batch is a struct: no values of its own, and a child for each column."""

    length: int
    nulls: int
    buffers: Sequence[Buffer | None]
    children: Sequence[Array]
    def __init__(
        self,
        length: int,
        buffers: Sequence[Buffer | None],
        children: Sequence[Array] = (),
        nulls: int = 0,
    ) -> None: ...

def schema_capsule(fields: Iterable[Field]) -> Any:
    """What ``__arrow_c_schema__`` gives, of record batches with these fields."""

def stream_capsule(fields: Iterable[Field], arrays: Iterable[Array]) -> Any:
    """What ``__arrow_c_stream__`` gives: ``arrays`` are record batches with these fields, made as
    they are asked for. What ``arrays`` raises becomes the stream's error; its ``close``, if there
    is one, is called where the stream ends."""
