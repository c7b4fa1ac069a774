# Encodes Kafka protocol messages by plan (codec.pyx decodes them), at once or in steps.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from kstore._fast.record.buffer cimport (
    store_int16, store_int32, store_int64, store_uint32, uvarint_size, write_uvarint,
)

from kstore._fast.protocol.plan cimport (
    KIND_ARRAY, KIND_BOOL, KIND_FLOAT64, KIND_INT8, KIND_INT32, KIND_INT64, KIND_RECORDS,
    KIND_STRING, KIND_STRUCT, KIND_UINT32, KIND_UUID, FieldPlan, Level, Plan, fixed_size,
)
from kstore._fast.protocol.wire cimport AnswerBuffer, put_raw, room

from kstore.errors import ProtocolError

cdef extern from "Python.h":
    object PyObject_GetAttr(object o, object name)
    const char* PyUnicode_AsUTF8AndSize(object o, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLong(object o) except? -1
    double PyFloat_AsDouble(object o) except? -1.0

cdef tuple KIND_NAMES = (
    "bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid", "string",
    "bytes", "records", "struct", "array",
)
cdef int64_t[7] INT_MIN
cdef int64_t[7] INT_MAX
INT_MIN[:] = [0, -128, -32768, 0, -2147483648, 0, INT64_MIN]
INT_MAX[:] = [1, 127, 32767, 65535, 2147483647, 4294967295, 9223372036854775807]

cdef enum:
    LARGE_RECORDS = 8192             # below it a copy is cheaper than another piece

cdef struct Out:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity
    PyObject* pieces                 # borrowed list for large records (not copied), or NULL
    Py_ssize_t total                 # bytes in pieces


cdef void begin(Out* out, PyObject* pieces) noexcept:
    out.data = NULL
    out.size = 0
    out.capacity = 0
    out.pieces = pieces
    out.total = 0


def encode(Plan plan, object message):
    """The message's bytes."""
    cdef Out out
    begin(&out, NULL)
    try:
        write_struct(plan, message, &out)
        return PyBytes_FromStringAndSize(<char*>out.data, out.size)
    finally:
        free(out.data)


def encode_frame(Plan plan, object message, Plan header_plan, object header):
    """Length prefix, header and message as one buffer, ready for a socket."""
    cdef Out out
    begin(&out, NULL)
    try:
        reserve(&out, 4)
        out.size = 4
        write_struct(header_plan, header, &out)
        write_struct(plan, message, &out)
        if out.size - 4 > 0x7FFFFFFF:
            raise ProtocolError(f"{plan.cls.__name__}: {out.size} bytes do not fit in a frame")
        store_int32(out.data, <int32_t>(out.size - 4))
        return PyBytes_FromStringAndSize(<char*>out.data, out.size)
    finally:
        free(out.data)


def encode_pieces(Plan plan, object message, Plan header_plan, object header):
    """As encode_frame, in pieces: large records fields are pieces of their own and are not
    copied."""
    cdef Out out
    cdef list pieces = []
    begin(&out, <PyObject*>pieces)
    try:
        reserve(&out, 4)
        out.size = 4
        write_struct(header_plan, header, &out)
        write_struct(plan, message, &out)
        pieces.append(PyBytes_FromStringAndSize(<char*>out.data, out.size))
        out.total += out.size - 4
        if out.total > 0x7FFFFFFF:
            raise ProtocolError(f"{plan.cls.__name__}: {out.total} bytes do not fit in a frame")
        # The first piece is new; no one else has a reference yet.
        store_int32(<uint8_t*>PyBytes_AS_STRING(pieces[0]), <int32_t>out.total)
        return pieces
    finally:
        free(out.data)


cdef int reserve(Out* out, Py_ssize_t extra) except -1:
    cdef Py_ssize_t capacity = out.capacity
    cdef uint8_t* data
    if out.size + extra <= capacity:
        return 0
    capacity = max(out.size + extra, 256 if capacity == 0 else capacity * 2)
    data = <uint8_t*>realloc(out.data, capacity)
    if data == NULL:
        raise MemoryError()
    out.data = data
    out.capacity = capacity
    return 0


cdef int write_length(FieldPlan field, Out* out, int width, Py_ssize_t length) except -1:
    cdef int64_t limit = 32767 if width == 2 else 2147483646
    if length > limit:
        raise ProtocolError(f"{field.where}: length {length} is more than {limit}")
    reserve(out, 5)
    if field.compact:
        out.size += write_uvarint(out.data + out.size, <uint32_t>(length + 1))
    elif width == 2:
        store_int16(out.data + out.size, <int16_t>length)
        out.size += 2
    else:
        store_int32(out.data + out.size, <int32_t>length)
        out.size += 4
    return 0


cdef int write_bytes(Out* out, const void* data, Py_ssize_t size) except -1:
    reserve(out, size)
    if size:
        memcpy(out.data + out.size, data, size)
    out.size += size
    return 0


cdef int write_blob(FieldPlan field, object value, Out* out, int kind) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t size
    cdef const char* text
    if value is None:
        if not field.nullable or field.kind == KIND_ARRAY:
            raise ProtocolError(f"{field.where}: None is not allowed in this version")
        return write_length(field, out, 2 if kind == KIND_STRING else 4, -1)
    if kind == KIND_STRING:
        text = PyUnicode_AsUTF8AndSize(value, &size)
        write_length(field, out, 2, size)
        return write_bytes(out, text, size)
    if kind == KIND_RECORDS and type(value) is tuple:
        size = 0
        for part in <tuple>value:
            size += len(part)
        write_length(field, out, 4, size)
        for part in <tuple>value:
            write_part(part, out, kind)
        return 0
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        write_length(field, out, 4, view.len)
    finally:
        PyBuffer_Release(&view)
    return write_part(value, out, kind)


# A length and its bytes; large records are a separate piece.
cdef int write_part(object value, Out* out, int kind) except -1:
    cdef Py_buffer view
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        if out.pieces != NULL and kind == KIND_RECORDS and view.len >= LARGE_RECORDS:
            (<list>out.pieces).append(PyBytes_FromStringAndSize(<char*>out.data, out.size))
            (<list>out.pieces).append(value)
            out.total += out.size + view.len
            out.size = 0
        else:
            write_bytes(out, view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return 0


cdef int write_fixed(FieldPlan field, object value, Out* out, int kind) except -1:
    cdef int64_t number
    cdef double real
    cdef uint8_t* p
    reserve(out, 16)
    p = out.data + out.size
    if kind == KIND_UUID:
        write_bytes(out, PyBytes_AS_STRING(value.bytes), 16)
        return 0
    if kind == KIND_FLOAT64:
        real = PyFloat_AsDouble(value)
        memcpy(&number, &real, 8)
        store_int64(p, number)
        out.size += 8
        return 0
    if kind == KIND_BOOL:
        p[0] = 1 if value else 0
        out.size += 1
        return 0
    number = PyLong_AsLongLong(value)
    if number < INT_MIN[kind] or number > INT_MAX[kind]:
        raise ProtocolError(f"{field.where}: {number} does not fit in {KIND_NAMES[kind]}")
    if kind == KIND_INT32 or kind == KIND_UINT32:
        store_uint32(p, <uint32_t>number)
    elif kind == KIND_INT64:
        store_int64(p, number)
    elif kind == KIND_INT8:
        p[0] = <uint8_t>number
    else:
        store_int16(p, <int16_t>number)
    out.size += fixed_size(kind)
    return 0


# Whether a struct follows: a nullable struct has this before it.
cdef bint write_presence(FieldPlan field, object value, Out* out) except -1:
    if not field.nullable or field.kind != KIND_STRUCT:
        return True
    reserve(out, 1)
    # Null is the byte -1 in a message, and the varint 0 in a tag, as in Kafka's generator.
    out.data[out.size] = 1 if value is not None else 0 if field.tagged else 0xFF
    out.size += 1
    return value is not None


cdef int write_value(FieldPlan field, object value, Out* out, int kind) except -1:
    if kind <= KIND_UUID:
        return write_fixed(field, value, out, kind)
    if kind <= KIND_RECORDS:
        return write_blob(field, value, out, kind)
    if kind == KIND_ARRAY:
        return write_array(field, value, out)
    if not write_presence(field, value, out):
        return 0
    if type(value) is not field.child.cls:
        raise TypeError(f"expected {field.child.cls.__name__}, got {type(value).__name__}")
    return write_struct(field.child, value, out)


cdef int write_array(FieldPlan field, object value, Out* out) except -1:
    value = begin_array(field, value, out)
    if value is not None:
        for item in <list>value:
            write_value(field, item, out, field.element)
    return 0


# Writes the count; returns the elements that follow, or None for a null array.
cdef list begin_array(FieldPlan field, object value, Out* out):
    if value is None:
        if not field.nullable:
            raise ProtocolError(f"{field.where}: None is not allowed in this version")
        write_length(field, out, 4, -1)
        return None
    if type(value) is not list:
        if isinstance(value, (str, bytes)):
            raise TypeError(f"expected a list, got {type(value).__name__}")
        value = list(value)
    write_length(field, out, 4, PyList_GET_SIZE(value))
    return <list>value


cdef int check_strict(Plan plan, object message) except -1:
    cdef FieldPlan field
    cdef Py_ssize_t i
    for i in range(PyList_GET_SIZE(plan.strict)):
        field = <FieldPlan>PyList_GET_ITEM(plan.strict, i)
        value = PyObject_GetAttr(message, field.name)
        if not field.is_default(value):
            raise ProtocolError(
                f"{field.where}: version {plan.version} has no such field, so it must keep its "
                f"default, not {value!r}")
    return 0


cdef int write_struct(Plan plan, object message, Out* out) except -1:
    cdef FieldPlan field = None
    cdef Py_ssize_t i
    try:
        check_strict(plan, message)
        for i in range(PyList_GET_SIZE(plan.fields)):
            field = <FieldPlan>PyList_GET_ITEM(plan.fields, i)
            write_value(field, PyObject_GetAttr(message, field.name), out, field.kind)
        if plan.flexible:
            field = None
            write_tags(plan, message, out)
    except (TypeError, AttributeError, OverflowError, UnicodeEncodeError) as error:
        where = plan.cls.__name__ if field is None else field.where
        raise ProtocolError(f"{where}: cannot be encoded: {error}") from error
    return 0


cdef int write_tags(Plan plan, object message, Out* out) except -1:
    cdef FieldPlan field
    cdef list present = None
    cdef uint32_t tag
    cdef Py_ssize_t size
    for field in plan.tagged:
        value = PyObject_GetAttr(message, field.name)
        if not field.is_default(value):
            if present is None:
                present = []
            present.append((field.tag, field, value))
    unknown = PyObject_GetAttr(message, "unknown_tags")
    if unknown:
        present = [] if present is None else present
        present.extend([(number, None, raw) for number, raw in unknown.items()])
        present.sort(key=first)
    reserve(out, 5)
    if present is None:
        out.data[out.size] = 0
        out.size += 1
        return 0
    out.size += write_uvarint(out.data + out.size, <uint32_t>PyList_GET_SIZE(present))
    for number, known, value in present:
        tag = number
        reserve(out, 10)
        out.size += write_uvarint(out.data + out.size, tag)
        if known is None:
            size = PyBytes_GET_SIZE(<bytes?>value)
            out.size += write_uvarint(out.data + out.size, <uint32_t>size)
            write_bytes(out, PyBytes_AS_STRING(value), size)
        else:
            write_tagged(<FieldPlan>known, value, out)
    return 0


cdef object first(tuple item):
    return item[0]


# The size of a tagged value is a varint before it: the value is moved when the size is known.
cdef int write_tagged(FieldPlan field, object value, Out* out) except -1:
    cdef Py_ssize_t start = out.size
    cdef Py_ssize_t size
    cdef int width
    write_value(field, value, out, field.kind)
    size = out.size - start
    width = uvarint_size(<uint32_t>size)
    reserve(out, width)
    memmove(out.data + start + width, out.data + start, size)
    write_uvarint(out.data + start, <uint32_t>size)
    out.size += width
    return 0


cdef class Encoding:
    """One large message, encoded in steps, so that the event loop can do other work between them.
    The message must not change meanwhile."""

    cdef Out out
    cdef list levels                 # from the message down to the current value
    cdef Py_ssize_t moved            # of the bytes

    def __cinit__(self):
        begin(&self.out, NULL)

    def __dealloc__(self):
        free(self.out.data)

    def __init__(self, Plan plan not None, object message):
        self.levels = []
        self.enter(plan, message)

    def step(self, Py_ssize_t elements):
        """Encode about that many more elements; whether it is complete."""
        cdef Level level = None
        try:
            while self.levels and elements > 0:
                level = <Level>PyList_GET_ITEM(self.levels, PyList_GET_SIZE(self.levels) - 1)
                if level.place == level.count:
                    self.levels.pop()
                    if level.plan is not None and level.plan.flexible:
                        write_tags(level.plan, level.whole, &self.out)
                elif level.plan is not None:
                    self.write_field(level)
                else:
                    self.write_element(level)
                    elements -= 1
                level.place += 1
        except (TypeError, AttributeError, OverflowError, UnicodeEncodeError) as error:
            where = level.plan.cls.__name__ if level.plan is not None else level.field.where
            raise ProtocolError(f"{where}: cannot be encoded: {error}") from error
        return not self.levels

    def result(self):
        """The message's bytes, after `step` has returned True."""
        return PyBytes_FromStringAndSize(<char*>self.out.data, self.out.size)

    @property
    def size(self):
        """The number of bytes."""
        return self.out.size

    def move(self, AnswerBuffer buffer not None, Py_ssize_t most):
        """Append the next bytes of the message to an answer; whether it has all of them."""
        cdef Py_ssize_t count = min(most, self.out.size - self.moved)
        room(buffer, count)
        put_raw(buffer, self.out.data + self.moved, count)
        self.moved += count
        return self.moved == self.out.size

    cdef int enter(self, Plan plan, object message) except -1:
        cdef Level level = Level.__new__(Level)
        if type(message) is not plan.cls:
            raise TypeError(f"expected {plan.cls.__name__}, got {type(message).__name__}")
        check_strict(plan, message)
        level.plan = plan
        level.whole = message
        level.count = PyList_GET_SIZE(plan.fields)
        self.levels.append(level)
        return 0

    cdef int write_field(self, Level level) except -1:
        cdef FieldPlan field = <FieldPlan>PyList_GET_ITEM(level.plan.fields, level.place)
        cdef Level inner
        value = PyObject_GetAttr(level.whole, field.name)
        if field.kind == KIND_STRUCT and field.child.has_arrays:
            return self.enter(field.child, value) if write_presence(field, value, &self.out) else 0
        if field.kind != KIND_ARRAY:
            return write_value(field, value, &self.out, field.kind)
        items = begin_array(field, value, &self.out)
        if items is not None:
            inner = Level.__new__(Level)
            inner.field = field
            inner.whole = items
            inner.count = PyList_GET_SIZE(items)
            self.levels.append(inner)
        return 0

    cdef int write_element(self, Level level) except -1:
        cdef FieldPlan field = level.field
        item = (<list>level.whole)[level.place]
        if field.element == KIND_STRUCT and field.child.has_arrays:
            return self.enter(field.child, item)
        return write_value(field, item, &self.out, field.element)
