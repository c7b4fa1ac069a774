# Arrow's C data and C stream interfaces, without an Arrow library: exports trees of buffers as
# capsules that DuckDB, Polars, pyarrow and others import. It knows no records, and imports no
# capsules.

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_Fetch, PyErr_Restore, PyErr_SetInterrupt
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.errno cimport EIO
from libc.stdint cimport int64_t

# The layout is fixed by https://arrow.apache.org/docs/format/CDataInterface.html
cdef struct ArrowSchema:
    const char* format
    const char* name
    const char* metadata
    int64_t flags
    int64_t n_children
    ArrowSchema** children
    ArrowSchema* dictionary
    void (*release)(ArrowSchema*) noexcept
    void* private_data

cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept
    void* private_data

cdef struct ArrowArrayStream:
    int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept
    int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept
    const char* (*get_last_error)(ArrowArrayStream*) noexcept
    void (*release)(ArrowArrayStream*) noexcept
    void* private_data

cdef enum:
    FLAG_NULLABLE = 2
    MOST_BUFFERS = 3

ctypedef fused Node:
    ArrowSchema
    ArrowArray

# The memory of one exported array. Its consumer may release it in any thread.
cdef struct Held:
    Py_buffer views[MOST_BUFFERS]
    const void* buffers[MOST_BUFFERS]
    bint taken[MOST_BUFFERS]
    int count


class Field:
    def __init__(self, name, format, children=(), *, nullable=True):
        self.name = name.encode()
        self.format = format.encode()
        self.children = tuple(children)
        self.nullable = nullable


class Array:
    __slots__ = ("buffers", "children", "length", "nulls")

    def __init__(self, length, buffers, children=(), nulls=0):
        self.length = length
        self.nulls = nulls
        self.buffers = buffers
        self.children = children


def schema_capsule(fields):
    cdef ArrowSchema* schema = <ArrowSchema*>PyMem_RawCalloc(1, sizeof(ArrowSchema))
    if schema == NULL:
        raise MemoryError
    capsule = PyCapsule_New(schema, "arrow_schema", _forget_schema)
    _fill_schema(Field("", "+s", fields, nullable=False), schema)
    return capsule


def stream_capsule(fields, arrays):
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>PyMem_RawCalloc(1, sizeof(ArrowArrayStream))
    cdef _Source source
    if stream == NULL:
        raise MemoryError
    capsule = PyCapsule_New(stream, "arrow_array_stream", _forget_stream)
    source = _Source()
    source.root = Field("", "+s", fields, nullable=False)
    source.arrays = iter(arrays)
    source.error = b""
    Py_INCREF(source)
    stream.private_data = <void*>source
    stream.get_schema = _get_schema
    stream.get_next = _get_next
    stream.get_last_error = _get_last_error
    stream.release = _release_stream
    return capsule


# ---- children of schemas and arrays ----

cdef int _fill_children(children, Node* out) except -1:
    cdef Py_ssize_t i, count = len(children)
    if not count:
        return 0
    out.children = <Node**>PyMem_RawCalloc(count, sizeof(Node*))
    if out.children == NULL:
        raise MemoryError
    for i in range(count):
        out.children[i] = <Node*>PyMem_RawCalloc(1, sizeof(Node))
        if out.children[i] == NULL:
            raise MemoryError
        out.n_children = i + 1
        if Node is ArrowSchema:
            _fill_schema(children[i], out.children[i])
        else:
            _fill_array(children[i], out.children[i])
    return 0


cdef void _release_children(Node* out) noexcept:
    cdef Py_ssize_t i
    for i in range(out.n_children):
        if out.children[i].release != NULL:         # else its consumer has moved it
            out.children[i].release(out.children[i])
        PyMem_RawFree(out.children[i])
    PyMem_RawFree(out.children)
    out.release = NULL


# ---- schemas ----

cdef int _fill_schema(field, ArrowSchema* out) except -1:
    out.format = field.format
    out.name = field.name
    out.flags = FLAG_NULLABLE if field.nullable else 0
    out.release = _release_schema
    Py_INCREF(field)                    # format and name point to its bytes
    out.private_data = <void*>field
    return _fill_children(field.children, out)


cdef void _release_schema(ArrowSchema* schema) noexcept with gil:
    _release_children(schema)
    Py_DECREF(<object>schema.private_data)


cdef void _forget_schema(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    PyMem_RawFree(schema)


# ---- arrays ----

cdef int _fill_array(array, ArrowArray* out) except -1:
    cdef Held* held = <Held*>PyMem_RawCalloc(1, sizeof(Held))
    if held == NULL:
        raise MemoryError
    out.private_data = held
    out.release = _release_array        # from here on, release frees what is held
    out.length = array.length
    out.null_count = array.nulls
    out.buffers = held.buffers
    for buffer in array.buffers:
        if buffer is not None:
            PyObject_GetBuffer(buffer, &held.views[held.count], PyBUF_SIMPLE)
            held.taken[held.count] = True
            held.buffers[held.count] = held.views[held.count].buf
        held.count += 1
    out.n_buffers = held.count
    return _fill_children(array.children, out)


cdef void _release_array(ArrowArray* array) noexcept with gil:
    cdef Py_ssize_t i
    cdef Held* held = <Held*>array.private_data
    for i in range(held.count):
        if held.taken[i]:
            PyBuffer_Release(&held.views[i])
    PyMem_RawFree(held)
    _release_children(array)


# ---- streams ----

@cython.final
cdef class _Source:
    cdef object root
    cdef object arrays
    cdef bytes error


cdef int _get_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept with gil:
    cdef _Source source = <_Source>stream.private_data
    out.release = NULL
    out.children = NULL
    out.n_children = 0
    out.metadata = NULL
    out.dictionary = NULL
    try:
        _fill_schema(source.root, out)
    except BaseException as error:
        if out.release != NULL:
            out.release(out)
        return _failed(source, error)
    return 0


cdef int _get_next(ArrowArrayStream* stream, ArrowArray* out) noexcept with gil:
    cdef _Source source = <_Source>stream.private_data
    out.release = NULL
    out.children = NULL
    out.dictionary = NULL
    out.n_children = 0
    out.offset = 0
    try:
        array = next(source.arrays, None)
        if array is not None:
            _fill_array(array, out)
    except BaseException as error:      # any exception: only the consumer can report it
        if out.release != NULL:
            out.release(out)
        return _failed(source, error)
    return 0


cdef int _failed(_Source source, error) noexcept:
    # An exception in here would return 0 to the consumer, which means the end of the stream.
    if isinstance(error, KeyboardInterrupt):
        PyErr_SetInterrupt()            # the consumer raises its own error with it
    try:
        source.error = (str(error) or type(error).__name__).encode("utf-8", "replace")
    except BaseException:
        source.error = b"an error that cannot be shown"
    return EIO


cdef const char* _get_last_error(ArrowArrayStream* stream) noexcept with gil:
    return (<_Source>stream.private_data).error


# Closes files and connections of a stream that was not read to its end; prints their errors.
cdef void _close(_Source source) noexcept:
    close = getattr(source.arrays, "close", None)
    if close is not None:
        close()


cdef void _release_stream(ArrowArrayStream* stream) noexcept with gil:
    cdef _Source source = <_Source>stream.private_data
    cdef PyObject* kind
    cdef PyObject* error
    cdef PyObject* trace
    stream.release = NULL
    # The consumer may be handling an exception, which must survive the calls here.
    PyErr_Fetch(&kind, &error, &trace)
    _close(source)
    Py_DECREF(source)
    PyErr_Restore(kind, error, trace)


cdef void _forget_stream(object capsule) noexcept:
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>PyCapsule_GetPointer(
        capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    PyMem_RawFree(stream)
