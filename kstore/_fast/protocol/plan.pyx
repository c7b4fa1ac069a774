# Plans: the wire format of a message class in one version, as data. schema.py compiles them,
# codec.pyx executes them; this module also fills messages with defaults and compares them.

cdef extern from "Python.h":
    int PyObject_SetAttr(object o, object name, object value) except -1
    object PyObject_GetAttr(object o, object name)

cdef Py_ssize_t[14] LEGACY_MIN_SIZE
cdef Py_ssize_t[14] COMPACT_MIN_SIZE
LEGACY_MIN_SIZE[:] = [1, 1, 2, 2, 4, 4, 8, 8, 16, 2, 4, 4, 0, 4]
COMPACT_MIN_SIZE[:] = [1, 1, 2, 2, 4, 4, 8, 8, 16, 1, 1, 1, 0, 1]


cdef class FieldPlan:
    """The wire format of one field in one version."""

    def __init__(self, str name, str where, int kind, int element, bint nullable, bint compact,
                 Plan child, object default, object factory, int tag):
        self.name = name
        self.where = where
        self.kind = kind
        self.element = element
        self.nullable = nullable
        self.compact = compact
        self.child = child
        self.default = default
        self.factory = factory
        self.reference = None
        self.tagged = tag >= 0
        self.tag = max(tag, 0)
        if kind == KIND_STRUCT:
            self.min_size = 1 if nullable else child.min_size
        else:
            self.min_size = COMPACT_MIN_SIZE[kind] if compact else LEGACY_MIN_SIZE[kind]
        if element == KIND_STRUCT:
            self.element_min_size = 1 if child is None else max(1, child.min_size)
        else:
            self.element_min_size = (
                COMPACT_MIN_SIZE[element] if compact else LEGACY_MIN_SIZE[element])

    cdef object make_default(self):
        return self.default if self.factory is None else self.factory()

    cdef bint is_default(self, object value) except -1:
        if self.kind == KIND_ARRAY:
            if value is None or self.factory is None:
                return value is None and self.factory is None
            return len(value) == 0
        if self.factory is None and value is self.default:
            return True
        if self.reference is None:
            self.reference = self.make_default()
        return value == self.reference


cdef class Plan:
    """One message class in one version; see `Message.encode` and `Message.decode`."""

    def __init__(self, object cls, int version, bint flexible, list fields, list tagged,
                 list absent, list strict):
        cdef FieldPlan field
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.fields = fields
        self.tagged = tagged
        self.absent = absent
        self.strict = strict
        self.min_size = 1 if flexible else 0
        for field in fields:
            self.min_size += field.min_size
        self.tagged_arrays = any_arrays(tagged)
        self.has_arrays = self.tagged_arrays or any_arrays(fields)


cdef bint any_arrays(list fields):
    cdef FieldPlan field
    for field in fields:
        if field.kind == KIND_ARRAY or field.kind == KIND_STRUCT and field.child.has_arrays:
            return True
    return False


cdef class Level:
    """The progress of a struct, an array or tagged fields of a message in steps."""


def initialize(object message, list fields, dict values):
    """Set every field of a new message to its value or default."""
    cdef FieldPlan field
    cdef Py_ssize_t used = 0
    cdef Py_ssize_t given = len(values)
    for field in fields:
        if given and field.name in values:
            PyObject_SetAttr(message, field.name, values[field.name])
            used += 1
        else:
            PyObject_SetAttr(message, field.name, field.make_default())
    if "unknown_tags" in values:
        message.unknown_tags = values["unknown_tags"]
        used += 1
    else:
        message.unknown_tags = None
    if used != given:
        known = {(<FieldPlan>field).name for field in fields} | {"unknown_tags"}
        names = ", ".join(sorted(set(values) - known))
        raise TypeError(f"{type(message).__name__} has no field {names}")


def same_fields(object left, object right, tuple names):
    """Whether two messages of one class have equal fields, including unknown tags."""
    for name in names:
        if PyObject_GetAttr(left, name) != PyObject_GetAttr(right, name):
            return False
    return left.unknown_tags == right.unknown_tags
