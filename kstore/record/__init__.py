"""Record batches (magic 2) as Python sees them: build, check, decode lazily or to Arrow.

The work is in ``kstore._fast``; this package gives it names. It knows no files, no clock and no
network.

May import: kstore._fast.record, kstore.types.
"""

from kstore._fast.record.batch import InvalidBatchError
from kstore._fast.record.batch_view import BatchView, assign, batches, validate
from kstore._fast.record.builder import RecordBatchBuilder, build_batch
from kstore._fast.record.compression import CompressionError
from kstore._fast.record.records import Record, RecordSet, decode
from kstore.record.arrow import to_arrow
from kstore.record.compression import COMPRESSIONS, Compression, compression_for
from kstore.record.control import ControlType, EndTransactionMarker, control_batch, read_control
from kstore.types import Header

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
