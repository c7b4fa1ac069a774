# Produce requests that arrived together and share one write.

from libc.stdint cimport int64_t, uint8_t

from kstore._fast.broker.partition cimport Partition
from kstore._fast.broker.produce_path cimport ProducePath
from kstore._fast.broker.produce_request cimport ProduceRequest
from kstore._fast.log.append_plan cimport AppendPiece
from kstore._fast.network.data_plane cimport ApiEntry, DataPlane
from kstore._fast.network.request_paths cimport RequestHead, RequestPaths

cdef class ProduceRuns:
    cdef ProducePath path
    cdef ApiEntry* api              # Produce's; the data plane's, which outlives this
    cdef int64_t max_elements
    cdef list requests              # ProduceRequest: read into by each run
    cdef readonly int64_t runs
    cdef int serve(self, DataPlane plane) except -1
    # Appends and answers the requests at the beginning of data, if several of them fit together;
    # returns the bytes used, 0: the first must be handled alone.
    cdef Py_ssize_t take(self, RequestPaths sink, uint8_t* data, Py_ssize_t size) except -1
    cdef bint read(
        self, uint8_t* data, Py_ssize_t size, RequestHead* head, ProduceRequest request) except -1
    cdef Partition find(self, RequestPaths sink, ProduceRequest request)
    cdef bint append(self, Partition partition, AppendPiece* pieces, int count) except -1
    cdef int answer(
        self, RequestPaths sink, RequestHead* head, ProduceRequest request, Partition partition,
        AppendPiece* piece, bint failed) except -1
