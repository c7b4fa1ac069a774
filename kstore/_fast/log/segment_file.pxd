# One append-only file and its system calls. It parses nothing.

from libc.stdint cimport int64_t, uint8_t

from kstore._fast.disk.page_reader cimport PageReader
from kstore._fast.disk.write_back cimport WriteBack

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

cdef class SegmentFile:
    cdef readonly str path
    cdef readonly int fd
    cdef readonly int64_t size_bytes        # the end of what this object wrote
    cdef readonly int64_t durable_bytes     # the end of what an fdatasync has covered
    cdef int64_t allocated_bytes            # the end of the disk space that the file certainly has
    cdef bint reserves                      # disk space is reserved ahead of writes
    cdef bint reserving                     # a thread will reserve more
    # it is reserving now, and the kernel delays writes meanwhile
    cdef bint allocating
    # callable(file): a thread calls `reserve_ahead`; None: writes reserve themselves
    cdef public object reserve_later
    # The file is longer than its data, with zeros at the end, until give_back() or close().
    cdef public bint zeros_ahead
    cdef int process                        # the process that opened it
    # Other processes append, too: no space is reserved or given back.
    cdef readonly bint shared
    cdef readonly bint writable
    cdef bint broken                        # a failed append could not be truncated
    cdef bint plain                         # not a Python subclass: C may call C
    cdef bint timed                         # the time of each append is measured
    cdef int64_t write_us                   # how long the last append's write took
    cdef public WriteBack write_back        # writes new data to the disk early; or None
    cdef int64_t noted_end                  # the end of what write_back knows
    cdef public PageReader pages            # reads what is not in the page cache; or None

    # One write at the end. After a failure, the file is truncated to its old size, or, if even that
    # fails, refuses all later writes. OSError is raised, and size_bytes never includes a failed
    # append.
    cpdef int append(self, data) except -1      # any buffer
    # The same for raw memory; calls append() if a Python subclass may override it. patient: called
    # by a thread that may wait, so the GIL is always released.
    cdef int append_pointer(
        self, const uint8_t* data, Py_ssize_t size, bint patient=*) except -1
    # The same for separate parts of this total size. It changes the parts.
    cdef int append_parts(self, iovec* parts, int count, Py_ssize_t size) except -1
    # Whether ``size`` bytes can be appended without reserving disk space or waiting for a thread
    # that does.
    cdef bint has_room(self, Py_ssize_t size) noexcept
    # Overwrites existing bytes. A failure may leave a part of it written.
    cpdef int overwrite(self, data, int64_t position) except -1
    # Reads at a position. Returns the bytes read: fewer only at the end of the file. Calls read()
    # of a Python subclass.
    cdef Py_ssize_t read_into(self, uint8_t* into, Py_ssize_t size, int64_t position) except -1
    cpdef bytes read(self, Py_ssize_t size, int64_t position)
    cpdef int sync(self) except -1          # fdatasync without the GIL
    cpdef int truncate(self, int64_t size_bytes) except -1
    # read the size again: another process may have changed it
    cpdef int64_t refresh(self) except -1
    cpdef int preallocate(self, int64_t size_bytes) except -1
    # Other processes have appended or truncated: the new end.
    cpdef int follow(self, int64_t size_bytes) except -1
    cpdef int give_back(self) except -1     # give back reserved space that is not used
    cpdef int close(self) except -1
    cdef int _check_writable(self) except -1
    cdef int _cut(self) noexcept
    cdef int _note_written(self) except -1
    cdef bint _wants_room(self) noexcept
    cdef void _reserve(self, Py_ssize_t size) noexcept
    cdef void _write_zeros(self, int64_t end) noexcept
    cdef int _write_one(self, const uint8_t* data, Py_ssize_t size, bint patient) except -1
    cdef int _write_parts(self, iovec* parts, int count) noexcept nogil
    cdef int _write(self, iovec* parts, int count, Py_ssize_t size, bint patient) except -1
    cdef Py_ssize_t _read(self, uint8_t* into, Py_ssize_t size, int64_t position) except -1
