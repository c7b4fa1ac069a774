# Plans: the wire format of one message class in one version. Only kstore/protocol/schema.py creates
# them.

from libc.stdint cimport uint8_t, uint32_t

cdef enum WireKind:
    KIND_BOOL = 0
    KIND_INT8 = 1
    KIND_INT16 = 2
    KIND_UINT16 = 3
    KIND_INT32 = 4
    KIND_UINT32 = 5
    KIND_INT64 = 6
    KIND_FLOAT64 = 7
    KIND_UUID = 8
    KIND_STRING = 9
    KIND_BYTES = 10
    KIND_RECORDS = 11
    KIND_STRUCT = 12
    KIND_ARRAY = 13

cdef extern from *:
    """
    static inline Py_ssize_t kstore_fixed_size(int kind) {
        static const Py_ssize_t sizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 16, 0, 0, 0, 0, 0};
        return sizes[kind];
    }
    """
    # Bytes of a kind; 0: it has no fixed size.
    Py_ssize_t fixed_size "kstore_fixed_size"(int kind) noexcept nogil

cdef class FieldPlan:
    cdef readonly str name
    cdef readonly str where          # "FetchRequest.topics", for error messages
    cdef readonly int kind
    cdef readonly int element        # kind of an array's elements; KIND_ARRAY never
    cdef readonly bint nullable
    cdef readonly bint compact       # lengths are unsigned varints (flexible versions)
    cdef readonly Plan child         # of a struct, or of an array's struct elements
    cdef readonly object default
    cdef readonly object factory     # creates the default, or None: the default is immutable
    cdef object reference            # a default for comparison, created at first use
    cdef readonly bint tagged
    cdef readonly uint32_t tag
    cdef readonly Py_ssize_t min_size
    cdef readonly Py_ssize_t element_min_size   # of an array's elements, at least 1

    cdef object make_default(self)
    cdef bint is_default(self, object value) except -1

cdef class Plan:
    cdef readonly object cls
    cdef readonly int version
    cdef readonly bint flexible
    cdef readonly list fields        # FieldPlans on the wire in order
    cdef readonly list tagged        # FieldPlans in ascending order of tag
    cdef readonly list absent        # FieldPlans not in this version: decode sets their defaults
    cdef readonly list strict        # those of absent that encode refuses unless default
    cdef readonly Py_ssize_t min_size
    cdef readonly bint has_arrays    # among fields and tagged, or in their structs
    cdef readonly bint tagged_arrays # the same of tagged alone

cdef class Level:
    cdef Plan plan                   # a struct's; None: it is an array, of this field
    cdef FieldPlan field             # or the tagged field that is being read
    cdef object whole                # the message, or the list: what is filled, or written
    cdef Py_ssize_t place            # the next field, element or tag
    cdef Py_ssize_t count
    cdef bint tags                   # reading the tags after the struct's fields
    cdef const uint8_t* outer        # the struct's limit, while a tag is read
