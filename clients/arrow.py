"""Consumed records as a `pyarrow.RecordBatch`. pyarrow is imported by the first call."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kstore.record.arrow import column_arrays
from kstore.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kstore._fast.record.columns import Columns

__all__ = ["record_batch"]


def record_batch(
    columns: Columns, runs: Sequence[tuple[TopicPartition, int]], *, headers: bool
) -> pyarrow.RecordBatch:
    """Columns topic (dictionary<int32, string>), partition int32, offset int64, timestamp int64
    (ms, -1 for none), key binary, value binary, and headers list<struct<key: string, value:
    binary>> if requested. `runs` has the partition of each run of rows, and its number of rows.
    """
    import pyarrow as pa

    names = list(dict.fromkeys(tp.topic for tp, _ in runs))
    index = {name: place for place, name in enumerate(names)}
    topics = pa.DictionaryArray.from_arrays(
        _repeated([(index[tp.topic], count) for tp, count in runs]), pa.array(names, pa.string())
    )
    partitions = _repeated([(tp.partition, count) for tp, count in runs])
    arrays = column_arrays(columns, headers=headers)
    return pa.RecordBatch.from_arrays(
        [topics, partitions, *arrays.values()], names=["topic", "partition", *arrays]
    )


def _repeated(runs: Sequence[tuple[int, int]]) -> Any:
    """An int32 array with the value of each run, repeated for its number of rows. It does not use
    numpy, which pyarrow does not install.
    """
    import pyarrow as pa

    data = b"".join(value.to_bytes(4, sys.byteorder) * count for value, count in runs)
    return pa.Array.from_buffers(pa.int32(), len(data) // 4, [None, pa.py_buffer(data)])
