"""What the footer of a Parquet file says about its row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["spans"]

_ANY = (-(2**63), 2**63 - 1)


def spans(meta: Any, columns: Sequence[str]) -> Iterator[list[tuple[int, int]]]:
    """For each row group of a pyarrow FileMetaData, the smallest and largest value of each of these
    integer columns; all 64-bit integers if the footer has no statistics.
    """
    place = {meta.schema.column(i).path: i for i in range(meta.num_columns)}
    for number in range(meta.num_row_groups):
        group = meta.row_group(number)
        found = [group.column(place[name]).statistics for name in columns]
        yield [(s.min, s.max) if s is not None and s.has_min_max else _ANY for s in found]
