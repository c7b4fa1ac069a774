# Decodes Kafka protocol messages by plan: every primitive type, nullable, compact and tagged forms
# (encoder.pyx encodes them). It knows no message by name and reads no schema; the plans come from
# schema.py. Every reader compares the bytes that it needs with the remaining bytes before it
# advances or allocates, and counts array elements: one of a byte or two becomes an object of 100.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from uuid import UUID

from kstore._fast.record.buffer cimport (
    load_int16, load_int32, load_int64, load_uint16, load_uint32, read_uvarint,
)

from kstore._fast.protocol.plan cimport (
    KIND_ARRAY, KIND_BOOL, KIND_INT8, KIND_INT16, KIND_INT32, KIND_INT64, KIND_RECORDS, KIND_STRING,
    KIND_STRUCT, KIND_UINT16, KIND_UINT32, KIND_UUID, FieldPlan, Level, Plan, fixed_size,
)

from kstore.errors import ProtocolError

cdef extern from "Python.h":
    int PyObject_SetAttr(object o, object name, object value) except -1
    int PyObject_GenericSetAttr(object o, object name, object value) except -1
    Py_ssize_t PY_SSIZE_T_MAX

cdef extern from *:
    """
    static inline PyObject* kstore_new(PyObject* cls, PyObject* no_arguments) {
        return ((PyTypeObject*)cls)->tp_new((PyTypeObject*)cls, no_arguments, NULL);
    }
    """
    # An instance without a call of __init__: decode sets every field.
    object kstore_new(object cls, object no_arguments)

cdef tuple NO_ARGUMENTS = ()
cdef object ZERO_UUID = UUID(int=0)
cdef object from_bytes = int.from_bytes
cdef object IS_SAFE = ZERO_UUID.is_safe

cdef enum:
    MAX_STRING = 32767               # bytes; Kafka's limit, also for compact strings

cdef struct Cursor:
    const uint8_t* p
    const uint8_t* end
    const uint8_t* base              # start of source, when source is an immutable bytes object
    PyObject* source                 # borrowed; NULL: records must be copied
    Py_ssize_t room                  # array elements and tagged fields that are still allowed


cdef object decode_raw(Plan plan, const uint8_t* p, const uint8_t* end, const uint8_t** next):
    cdef Cursor cursor
    cursor.p = p
    cursor.end = end
    cursor.base = p
    cursor.source = NULL
    cursor.room = PY_SSIZE_T_MAX
    message = read_struct(plan, &cursor)
    if next != NULL:
        next[0] = cursor.p
    return message


def decode_prefix(Plan plan, object buffer, Py_ssize_t offset=0, Py_ssize_t max_elements=-1):
    """Decode one message at offset; return it and the offset after it."""
    cdef Cursor cursor
    cursor.room = PY_SSIZE_T_MAX if max_elements < 0 else max_elements
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


# The length or count before a variable field; -1 is null. Checks sign and nullability, and count *
# unit against the remaining bytes, so that the caller may allocate.
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
    if length < 0:                          # any negative value is null, as in Kafka
        if not nullable:
            raise ProtocolError(f"{field.where}: is null, which this version does not allow")
        return -1
    if length * unit > c.end - c.p:
        raise ProtocolError(
            f"{field.where}: length {length} is more than the {c.end - c.p} bytes left in the "
            "frame")
    return <Py_ssize_t>length


cdef int take(str where, Cursor* c, Py_ssize_t count) except -1:
    if count > c.room:
        raise ProtocolError(
            f"{where}: {count} elements are more than the {c.room} that the message may still have "
            "(kstore.request.max.elements)")
    c.room -= count
    return 0


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
        if length > MAX_STRING:
            raise ProtocolError(f"{field.where}: a string of {length} bytes, at most {MAX_STRING}")
        # As in Kafka: bytes that are not UTF-8 become the replacement character.
        return PyUnicode_DecodeUTF8(<char*>p, length, "replace")
    if kind == KIND_RECORDS and c.source != NULL:
        start = p - c.base
        return memoryview(<object>c.source)[start:start + length]
    return PyBytes_FromStringAndSize(<char*>p, length)


cdef object read_fixed(FieldPlan field, Cursor* c, int kind):
    cdef const uint8_t* p = c.p
    cdef uint64_t bits
    cdef double number
    need(field, c, fixed_size(kind))
    c.p += fixed_size(kind)
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


# Whether a struct follows; always if it is not nullable, or is an array's element.
cdef bint read_presence(FieldPlan field, Cursor* c) except -1:
    cdef int8_t present
    if not field.nullable or field.kind != KIND_STRUCT:
        return True
    need(field, c, 1)
    present = <int8_t>c.p[0]
    c.p += 1
    return not (present < 0 or present == 0 and field.tagged)


cdef object read_value(FieldPlan field, Cursor* c, int kind):
    if kind <= KIND_UUID:
        return read_fixed(field, c, kind)
    if kind <= KIND_RECORDS:
        return read_blob(field, c, kind)
    if kind == KIND_STRUCT:
        return read_struct(field.child, c) if read_presence(field, c) else None
    return read_array(field, c)


cdef object read_array(FieldPlan field, Cursor* c):
    cdef Py_ssize_t count
    cdef Py_ssize_t i
    cdef int kind = field.element
    count = read_length(field, c, 4, field.element_min_size, field.nullable)
    if count < 0:
        return None
    take(field.where, c, count)
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
    end_struct(plan, message, c)
    return message


# The tagged fields after a struct's fields, and the fields that are not in this version.
cdef int end_struct(Plan plan, object message, Cursor* c) except -1:
    set_defaults(plan, message)
    if plan.flexible:
        if c.p < c.end and c.p[0] == 0:
            c.p += 1
        else:
            read_tags(plan, message, c)
    return 0


cdef int set_defaults(Plan plan, object message) except -1:
    cdef FieldPlan field
    cdef Py_ssize_t i
    for i in range(PyList_GET_SIZE(plan.absent)):
        field = <FieldPlan>PyList_GET_ITEM(plan.absent, i)
        PyObject_SetAttr(message, field.name, field.make_default())
    PyObject_SetAttr(message, "unknown_tags", None)
    if plan.flexible:
        for i in range(PyList_GET_SIZE(plan.tagged)):
            field = <FieldPlan>PyList_GET_ITEM(plan.tagged, i)
            PyObject_SetAttr(message, field.name, field.make_default())
    return 0


cdef uint32_t read_tag_number(Plan plan, Cursor* c) except? 0xFFFFFFFFU:
    cdef uint32_t value
    cdef int n = read_uvarint(c.p, c.end, &value)
    if n == 0:
        raise ProtocolError(f"{plan.cls.__name__}: its tagged fields are truncated")
    c.p += n
    return value


# Unknown tags are kept as bytes, so that a forwarded message loses nothing. The order of tags is
# not checked, as in Kafka; the last of repeated tags counts.
cdef int read_tags(Plan plan, object message, Cursor* c) except -1:
    cdef Py_ssize_t count = read_tag_count(plan, c)
    cdef const uint8_t* outer
    cdef FieldPlan field
    while count > 0:
        count -= 1
        field = begin_tag(plan, message, c, &outer)
        if field is not None:
            PyObject_SetAttr(message, field.name, read_value(field, c, field.kind))
            end_tag(field, c, outer)
    return 0


cdef Py_ssize_t read_tag_count(Plan plan, Cursor* c) except -1:
    cdef int32_t count = <int32_t>read_tag_number(plan, c)
    if <int64_t>count * 2 > c.end - c.p:
        raise ProtocolError(
            f"{plan.cls.__name__}: {count} tagged fields do not fit in the {c.end - c.p} bytes "
            "left")
    count = max(count, 0)                   # a negative count means none, as in Kafka
    take(plan.cls.__name__, c, count)
    return count


# The field of the next tag: until `end_tag`, the cursor ends with its value. None for an unknown
# tag, whose bytes are kept.
cdef FieldPlan begin_tag(Plan plan, object message, Cursor* c, const uint8_t** outer):
    cdef uint32_t tag = read_tag_number(plan, c)
    cdef uint32_t size = read_tag_number(plan, c)
    cdef FieldPlan field
    if size > c.end - c.p:
        raise ProtocolError(f"{plan.cls.__name__}: tag {tag} has {size} bytes, but "
                            f"{c.end - c.p} are left in the frame")
    field = find_tag(plan, tag)
    if field is None:
        if message.unknown_tags is None:
            message.unknown_tags = {}
        message.unknown_tags[tag] = PyBytes_FromStringAndSize(<char*>c.p, size)
        c.p += size
        return None
    outer[0] = c.end
    c.end = c.p + size
    return field


cdef int end_tag(FieldPlan field, Cursor* c, const uint8_t* outer) except -1:
    if c.p != c.end:
        raise ProtocolError(
            f"{field.where}: tag {field.tag} has {c.end - c.p} bytes too many")
    c.end = outer
    return 0


cdef FieldPlan find_tag(Plan plan, uint32_t tag):
    cdef FieldPlan field
    for field in plan.tagged:
        if field.tag == tag:
            return field
    return None


cdef class Decoding:
    """One large message, decoded in steps, so that the event loop can do other work between
    them."""

    cdef bytes source
    cdef Cursor cursor
    cdef list levels                 # from the message down to the current value
    cdef readonly object message     # complete when `step` has returned True

    def __init__(self, Plan plan not None, bytes buffer not None, Py_ssize_t max_elements):
        self.source = buffer
        self.cursor.base = <const uint8_t*>PyBytes_AS_STRING(buffer)
        self.cursor.source = <PyObject*>buffer
        self.cursor.p = self.cursor.base
        self.cursor.end = self.cursor.base + PyBytes_GET_SIZE(buffer)
        self.cursor.room = max_elements
        self.levels = []
        self.message = self.enter(plan)

    def step(self, Py_ssize_t elements):
        """Decode about that many more elements; whether it is complete."""
        cdef Level level
        cdef FieldPlan field
        while self.levels and elements > 0:
            level = <Level>PyList_GET_ITEM(self.levels, PyList_GET_SIZE(self.levels) - 1)
            if level.tags:
                self.read_tag(level)
                elements -= 1
            elif level.place == level.count:
                self.levels.pop()
                if level.plan is not None:
                    self.end(level)
            elif level.plan is not None:
                field = <FieldPlan>PyList_GET_ITEM(level.plan.fields, level.place)
                self.read_field(level.whole, field)
            else:
                self.read_element(level)
                elements -= 1
            level.place += 1
        return not self.levels

    cdef object enter(self, Plan plan):
        cdef Level level = Level.__new__(Level)
        level.plan = plan
        level.whole = kstore_new(plan.cls, NO_ARGUMENTS)
        level.count = PyList_GET_SIZE(plan.fields)
        self.levels.append(level)
        return level.whole

    # A field of a message; for an array or a struct with arrays, only its beginning.
    cdef int read_field(self, object message, FieldPlan field) except -1:
        cdef Level inner
        cdef Py_ssize_t count
        if field.kind == KIND_STRUCT and field.child.has_arrays:
            value = self.enter(field.child) if read_presence(field, &self.cursor) else None
            PyObject_SetAttr(message, field.name, value)
            return 0
        if field.kind != KIND_ARRAY:
            PyObject_SetAttr(message, field.name, read_value(field, &self.cursor, field.kind))
            return 0
        count = read_length(field, &self.cursor, 4, field.element_min_size, field.nullable)
        if count < 0:
            PyObject_SetAttr(message, field.name, None)
            return 0
        take(field.where, &self.cursor, count)
        inner = Level.__new__(Level)
        inner.field = field
        inner.whole = []
        inner.count = count
        PyObject_SetAttr(message, field.name, inner.whole)
        self.levels.append(inner)
        return 0

    # A struct whose fields are read: reads its tagged fields, too, or prepares steps for them.
    cdef int end(self, Level level) except -1:
        cdef Level tags
        cdef Py_ssize_t count
        if not level.plan.tagged_arrays:
            return end_struct(level.plan, level.whole, &self.cursor)
        set_defaults(level.plan, level.whole)
        count = read_tag_count(level.plan, &self.cursor)
        if count:
            tags = Level.__new__(Level)
            tags.plan = level.plan
            tags.whole = level.whole
            tags.count = count
            tags.tags = True
            self.levels.append(tags)
        return 0

    # The end of the previous tag, then the next one.
    cdef int read_tag(self, Level level) except -1:
        if level.field is not None:
            end_tag(level.field, &self.cursor, level.outer)
            level.field = None
        if level.place == level.count:
            self.levels.pop()
            return 0
        level.field = begin_tag(level.plan, level.whole, &self.cursor, &level.outer)
        if level.field is not None:
            self.read_field(level.whole, level.field)
        return 0

    cdef int read_element(self, Level level) except -1:
        cdef FieldPlan field = level.field
        if field.element == KIND_STRUCT and field.child.has_arrays:
            (<list>level.whole).append(self.enter(field.child))
        else:
            (<list>level.whole).append(read_value(field, &self.cursor, field.element))
        return 0
