"""Record batches (magic 2) in Python: build, verify, decode lazily or to Arrow.

``kstore._fast`` implements it; this package has the names. It uses no files, clock or network.

May import: kstore._fast.record, kstore.types.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kstore._fast.record.batch import InvalidBatchError
from kstore._fast.record.compression import CompressionError
from kstore.record.compression import COMPRESSIONS, Compression, compression_for
from kstore.types import Header

if TYPE_CHECKING:
    from kstore._fast.record.batch_view import BatchView, assign, batches, validate
    from kstore._fast.record.builder import RecordBatchBuilder, build_batch
    from kstore._fast.record.records import Record, RecordSet, decode
    from kstore.record.arrow import to_arrow
    from kstore.record.control import ControlType, EndTransactionMarker, control_batch, read_control

__all__ = [
    "COMPRESSIONS",
    "BatchView",
    "Compression",
    "CompressionError",
    "ControlType",
    "EndTransactionMarker",
    "Header",
    "InvalidBatchError",
    "Record",
    "RecordBatchBuilder",
    "RecordSet",
    "assign",
    "batches",
    "build_batch",
    "compression_for",
    "control_batch",
    "decode",
    "read_control",
    "to_arrow",
    "validate",
]

_LATER = {
    "kstore._fast.record.batch_view": ("BatchView", "assign", "batches", "validate"),
    "kstore._fast.record.builder": ("RecordBatchBuilder", "build_batch"),
    "kstore._fast.record.records": ("Record", "RecordSet", "decode"),
    "kstore.record.arrow": ("to_arrow",),
    "kstore.record.control": (
        "ControlType", "EndTransactionMarker", "control_batch", "read_control",
    ),
}  # fmt: skip
"""Module to names that a broker does not need when it starts."""


def __getattr__(name: str) -> Any:
    """Import the module of a name when the name is used."""
    for module, names in _LATER.items():
        if name in names:
            found = getattr(import_module(module), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module 'kstore.record' has no attribute {name!r}")
