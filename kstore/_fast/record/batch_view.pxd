# A batch in a buffer, for Python.

from kstore._fast.record.batch cimport BatchInfo

# A batch's header and its position in the buffer, which it keeps alive.
cdef class BatchView:
    cdef BatchInfo info
    cdef readonly Py_ssize_t position
    cdef object view                # memoryview of the whole buffer
    cdef object unpacked            # the decompressed records (bytearray), or None

cdef BatchView make_view(object view, Py_ssize_t position, const BatchInfo* info)
