# Encodes and decodes Kafka protocol messages by plan: every primitive type, nullable, compact and
# tagged forms. It knows no message by name and reads no schema; the plans come from schema.py.
# Every reader compares the bytes it needs with the bytes left before it advances or allocates.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport (
    INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t,
)
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from uuid import UUID

from kstore._fast.buffer cimport (
    load_int16, load_int32, load_int64, load_uint16, load_uint32, read_uvarint, store_int16,
    store_int32, store_int64, store_uint32, uvarint_size, write_uvarint,
)

from kstore._fast.plan cimport (
    KIND_ARRAY, KIND_BOOL, KIND_FLOAT64, KIND_INT8, KIND_INT16, KIND_INT32, KIND_INT64,
    KIND_RECORDS, KIND_STRING, KIND_STRUCT, KIND_UINT16, KIND_UINT32, KIND_UUID, FieldPlan, Plan,
)

from kstore.errors import ProtocolError

cdef extern from "Python.h":
    int PyObject_SetAttr(object o, object name, object value) except -1
    int PyObject_GenericSetAttr(object o, object name, object value) except -1
    object PyObject_GetAttr(object o, object name)
    const char* PyUnicode_AsUTF8AndSize(object o, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLong(object o) except? -1
    double PyFloat_AsDouble(object o) except? -1.0

cdef extern from *:
    """
    static inline PyObject* kstore_new(PyObject* cls, PyObject* no_arguments) {
        return ((PyTypeObject*)cls)->tp_new((PyTypeObject*)cls, no_arguments, NULL);
    }
    """
    # An instance without its __init__ run: decode sets every field itself.
    object kstore_new(object cls, object no_arguments)

cdef tuple NO_ARGUMENTS = ()
cdef object ZERO_UUID = UUID(int=0)
cdef object from_bytes = int.from_bytes
cdef object IS_SAFE = ZERO_UUID.is_safe

# Bytes of a fixed-size kind; 0 for the others.
cdef Py_ssize_t[14] FIXED_SIZE
FIXED_SIZE[:] = [1, 1, 2, 2, 4, 4, 8, 8, 16, 0, 0, 0, 0, 0]
cdef tuple KIND_NAMES = (
    "bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid", "string",
    "bytes", "records", "struct", "array",
)
cdef int64_t[7] INT_MIN
cdef int64_t[7] INT_MAX
INT_MIN[:] = [0, -128, -32768, 0, -2147483648, 0, INT64_MIN]
INT_MAX[:] = [1, 127, 32767, 65535, 2147483647, 4294967295, 9223372036854775807]

cdef enum:
    LARGE_RECORDS = 8192             # below it a copy costs less than one more piece

cdef struct Cursor:
    const uint8_t* p
    const uint8_t* end
    const uint8_t* base              # start of source, when source is an immutable bytes object
    PyObject* source                 # borrowed; NULL: records must be copied

cdef struct Out:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity
    PyObject* pieces                 # borrowed list that takes large records as they are, or NULL
    Py_ssize_t total                 # bytes in pieces


cdef void begin(Out* out, PyObject* pieces) noexcept:
    out.data = NULL
    out.size = 0
    out.capacity = 0
    out.pieces = pieces
    out.total = 0


cdef object decode_raw(Plan plan, const uint8_t* p, const uint8_t* end, const uint8_t** next):
    cdef Cursor cursor
    cursor.p = p
    cursor.end = end
    cursor.base = p
    cursor.source = NULL
    message = read_struct(plan, &cursor)
    if next != NULL:
        next[0] = cursor.p
    return message


def decode_prefix(Plan plan, object buffer, Py_ssize_t offset=0):
    """Decode one message at offset; return it and the offset after it."""
    cdef Cursor cursor
    cdef Py_buffer view
    cdef Py_ssize_t size
    if type(buffer) is bytes:
        cursor.base = <const uint8_t*>PyBytes_AS_STRING(buffer)
        size = PyBytes_GET_SIZE(buffer)
        cursor.source = <PyObject*>buffer
        check_offset(offset, size)
        cursor.p = cursor.base + offset
        cursor.end = cursor.base + size
        message = read_struct(plan, &cursor)
        return message, cursor.p - cursor.base
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        check_offset(offset, view.len)
        cursor.base = <const uint8_t*>view.buf
        cursor.source = NULL
        cursor.p = cursor.base + offset
        cursor.end = cursor.base + view.len
        message = read_struct(plan, &cursor)
        return message, cursor.p - cursor.base
    finally:
        PyBuffer_Release(&view)


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
    """As encode_frame, in pieces: large records fields stand among them as the objects that they
    are, not copied."""
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
        # The first piece is new, and nobody else's yet.
        store_int32(<uint8_t*>PyBytes_AS_STRING(pieces[0]), <int32_t>out.total)
        return pieces
    finally:
        free(out.data)


cdef int check_offset(Py_ssize_t offset, Py_ssize_t size) except -1:
    if offset < 0 or offset > size:
        raise ProtocolError(f"offset {offset} lies outside a buffer of {size} bytes")
    return 0


cdef int truncated(FieldPlan field, Py_ssize_t needed, Cursor* c) except -1:
    raise ProtocolError(
        f"{field.where}: needs {needed} more bytes, but {c.end - c.p} are left in the frame")


cdef inline int need(FieldPlan field, Cursor* c, Py_ssize_t size) except -1:
    if c.end - c.p < size:
        return truncated(field, size, c)
    return 0


# The length or count in front of a variable field; -1 is null. Checked against sign and
# nullability, and count * unit against what is left, so that what follows may be allocated.
cdef Py_ssize_t read_length(
        FieldPlan field, Cursor* c, int width, Py_ssize_t unit, bint nullable) except -2:
    cdef uint32_t raw
    cdef int64_t length
    cdef int n
    if field.compact:
        n = read_uvarint(c.p, c.end, &raw)
        if n == 0:
            raise ProtocolError(f"{field.where}: its length is truncated or not a 32-bit varint")
        c.p += n
        length = <int32_t>(raw - 1)
    elif width == 2:
        need(field, c, 2)
        length = load_int16(c.p)
        c.p += 2
    else:
        need(field, c, 4)
        length = load_int32(c.p)
        c.p += 4
    if length < 0:                          # any negative one is null, as in Kafka
        if not nullable:
            raise ProtocolError(f"{field.where}: is null, which this version does not allow")
        return -1
    if length * unit > c.end - c.p:
        raise ProtocolError(
            f"{field.where}: length {length} is more than the {c.end - c.p} bytes left in the "
            "frame")
    return <Py_ssize_t>length


cdef object read_uuid(const uint8_t* p):
    cdef bytes raw
    if load_int64(p) == 0 and load_int64(p + 8) == 0:
        return ZERO_UUID
    raw = PyBytes_FromStringAndSize(<char*>p, 16)
    value = kstore_new(UUID, NO_ARGUMENTS)
    PyObject_GenericSetAttr(value, "int", from_bytes(raw, "big"))
    PyObject_GenericSetAttr(value, "is_safe", IS_SAFE)
    return value


cdef object read_blob(FieldPlan field, Cursor* c, int kind):
    # A nullable array's elements are not nullable themselves.
    cdef bint nullable = field.nullable and field.kind != KIND_ARRAY
    cdef Py_ssize_t length = read_length(field, c, 2 if kind == KIND_STRING else 4, 1, nullable)
    cdef const uint8_t* p = c.p
    cdef Py_ssize_t start
    if length < 0:
        return None
    c.p += length
    if kind == KIND_STRING:
        # As in Kafka: what is not UTF-8 becomes the replacement character.
        return PyUnicode_DecodeUTF8(<char*>p, length, "replace")
    if kind == KIND_RECORDS and c.source != NULL:
        start = p - c.base
        return memoryview(<object>c.source)[start:start + length]
    return PyBytes_FromStringAndSize(<char*>p, length)


cdef object read_fixed(FieldPlan field, Cursor* c, int kind):
    cdef const uint8_t* p = c.p
    cdef uint64_t bits
    cdef double number
    need(field, c, FIXED_SIZE[kind])
    c.p += FIXED_SIZE[kind]
    if kind == KIND_INT32:
        return load_int32(p)
    if kind == KIND_INT64:
        return load_int64(p)
    if kind == KIND_INT16:
        return load_int16(p)
    if kind == KIND_INT8:
        return <int8_t>p[0]
    if kind == KIND_BOOL:
        return p[0] != 0
    if kind == KIND_UUID:
        return read_uuid(p)
    if kind == KIND_UINT16:
        return load_uint16(p)
    if kind == KIND_UINT32:
        return load_uint32(p)
    bits = <uint64_t>load_int64(p)
    memcpy(&number, &bits, 8)
    return number


cdef object read_value(FieldPlan field, Cursor* c, int kind):
    cdef int8_t present
    if kind <= KIND_UUID:
        return read_fixed(field, c, kind)
    if kind <= KIND_RECORDS:
        return read_blob(field, c, kind)
    if kind == KIND_STRUCT:
        if field.nullable and field.kind == KIND_STRUCT:
            need(field, c, 1)
            present = <int8_t>c.p[0]
            c.p += 1
            if present < 0 or present == 0 and field.tagged:
                return None
        return read_struct(field.child, c)
    return read_array(field, c)


cdef object read_array(FieldPlan field, Cursor* c):
    cdef Py_ssize_t count
    cdef Py_ssize_t i
    cdef int kind = field.element
    count = read_length(field, c, 4, field.element_min_size, field.nullable)
    if count < 0:
        return None
    items = PyList_New(count)
    for i in range(count):
        item = read_value(field, c, kind)
        Py_INCREF(item)
        PyList_SET_ITEM(items, i, item)
    return items


cdef object read_struct(Plan plan, Cursor* c):
    cdef FieldPlan field
    cdef Py_ssize_t i
    message = kstore_new(plan.cls, NO_ARGUMENTS)
    for i in range(PyList_GET_SIZE(plan.fields)):
        field = <FieldPlan>PyList_GET_ITEM(plan.fields, i)
        PyObject_SetAttr(message, field.name, read_value(field, c, field.kind))
    for i in range(PyList_GET_SIZE(plan.absent)):
        field = <FieldPlan>PyList_GET_ITEM(plan.absent, i)
        PyObject_SetAttr(message, field.name, field.make_default())
    PyObject_SetAttr(message, "unknown_tags", None)
    if plan.flexible:
        for i in range(PyList_GET_SIZE(plan.tagged)):
            field = <FieldPlan>PyList_GET_ITEM(plan.tagged, i)
            PyObject_SetAttr(message, field.name, field.make_default())
        if c.p < c.end and c.p[0] == 0:
            c.p += 1
        else:
            read_tags(plan, message, c)
    return message


cdef uint32_t read_tag_number(Plan plan, Cursor* c) except? 0xFFFFFFFFU:
    cdef uint32_t value
    cdef int n = read_uvarint(c.p, c.end, &value)
    if n == 0:
        raise ProtocolError(f"{plan.cls.__name__}: its tagged fields are truncated")
    c.p += n
    return value


# Unknown tags are kept as bytes, so that a message passed on loses nothing. The order of tags is
# not checked, as in Kafka; of a repeated tag the last one counts.
cdef int read_tags(Plan plan, object message, Cursor* c) except -1:
    cdef int32_t count = <int32_t>read_tag_number(plan, c)
    cdef uint32_t tag
    cdef uint32_t size
    cdef Cursor part
    cdef FieldPlan field
    cdef dict unknown = None
    if <int64_t>count * 2 > c.end - c.p:
        raise ProtocolError(
            f"{plan.cls.__name__}: {count} tagged fields do not fit in the {c.end - c.p} bytes "
            "left")
    while count > 0:                        # a negative count is none, as in Kafka
        count -= 1
        tag = read_tag_number(plan, c)
        size = read_tag_number(plan, c)
        if size > c.end - c.p:
            raise ProtocolError(f"{plan.cls.__name__}: tag {tag} has {size} bytes, but "
                                f"{c.end - c.p} are left in the frame")
        part = c[0]
        part.end = c.p + size
        c.p += size
        field = find_tag(plan, tag)
        if field is None:
            if unknown is None:
                unknown = {}
            unknown[tag] = PyBytes_FromStringAndSize(<char*>part.p, size)
            continue
        PyObject_SetAttr(message, field.name, read_value(field, &part, field.kind))
        if part.p != part.end:
            raise ProtocolError(f"{field.where}: tag {tag} has {part.end - part.p} bytes too many")
    if unknown is not None:
        PyObject_SetAttr(message, "unknown_tags", unknown)
    return 0


cdef FieldPlan find_tag(Plan plan, uint32_t tag):
    cdef FieldPlan field
    for field in plan.tagged:
        if field.tag == tag:
            return field
    return None


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
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        write_length(field, out, 4, view.len)
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
    out.size += FIXED_SIZE[kind]
    return 0


cdef int write_value(FieldPlan field, object value, Out* out, int kind) except -1:
    if kind <= KIND_UUID:
        return write_fixed(field, value, out, kind)
    if kind <= KIND_RECORDS:
        return write_blob(field, value, out, kind)
    if kind == KIND_ARRAY:
        return write_array(field, value, out)
    if field.nullable and field.kind == KIND_STRUCT:
        reserve(out, 1)
        # Null is -1 as a byte in line, and 0 as a varint in a tag: Kafka's generator has it so.
        out.data[out.size] = 1 if value is not None else 0 if field.tagged else 0xFF
        out.size += 1
        if value is None:
            return 0
    if type(value) is not field.child.cls:
        raise TypeError(f"expected {field.child.cls.__name__}, got {type(value).__name__}")
    return write_struct(field.child, value, out)


cdef int write_array(FieldPlan field, object value, Out* out) except -1:
    if value is None:
        if not field.nullable:
            raise ProtocolError(f"{field.where}: None is not allowed in this version")
        return write_length(field, out, 4, -1)
    if type(value) is not list:
        if isinstance(value, (str, bytes)):
            raise TypeError(f"expected a list, got {type(value).__name__}")
        value = list(value)
    write_length(field, out, 4, PyList_GET_SIZE(value))
    for item in <list>value:
        write_value(field, item, out, field.element)
    return 0


cdef int write_struct(Plan plan, object message, Out* out) except -1:
    cdef FieldPlan field = None
    cdef Py_ssize_t i
    try:
        for i in range(PyList_GET_SIZE(plan.strict)):
            field = <FieldPlan>PyList_GET_ITEM(plan.strict, i)
            value = PyObject_GetAttr(message, field.name)
            if not field.is_default(value):
                raise ProtocolError(
                    f"{field.where}: version {plan.version} has no such field, so it must keep its "
                    f"default, not {value!r}")
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


# The size of a tagged value stands in front of it and is a varint: the value is moved up when the
# size is known.
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
