"""Arrow's C data and C stream interfaces, without an Arrow library: exports trees of buffers as
capsules that DuckDB, Polars, pyarrow and others import.
"""

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
    """Values in Arrow's layout: at most three buffers, None for a validity bitmap without nulls. A
    record batch is a struct: no values of its own, and a child for each column.
    """

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
    """The result of ``__arrow_c_schema__``, for record batches with these fields."""

def stream_capsule(fields: Iterable[Field], arrays: Iterable[Array]) -> Any:
    """The result of ``__arrow_c_stream__``: ``arrays`` are record batches with these fields,
    created on demand. An exception of ``arrays`` becomes the stream's error; its ``close``, if
    there is one, is called at the end of the stream.
    """
