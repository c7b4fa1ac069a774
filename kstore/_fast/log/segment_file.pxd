# One append-only file and its system calls: it parses nothing.

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
    cdef readonly int64_t size_bytes        # end of what was written through this object
    cdef readonly int64_t durable_bytes     # end of what an fdatasync has covered
    cdef int64_t allocated_bytes            # end of the disk space that the file has for sure
    cdef bint reserves                      # asks for space ahead of its writes
    cdef bint reserving                     # a thread is about to ask for more
    cdef bint allocating                    # it asks now, and the kernel delays writes meanwhile
    # callable(file): has a thread call `reserve_ahead`; None: writes ask themselves
    cdef public object reserve_later
    # The file is longer than its data: zeros lie behind it until give_back() or close().
    cdef public bint zeros_ahead
    cdef int process                        # who opened it
    # Other processes append to it too: no space is taken ahead, and none is given back.
    cdef readonly bint shared
    cdef readonly bint writable
    cdef bint broken                        # a failed append could not be cut back
    cdef bint plain                         # not a Python subclass: C may call C
    cdef bint timed                         # whoever appends wants to know how long it takes
    cdef int64_t write_us                   # how long the last append's write took
    cdef public WriteBack write_back        # who has the system write what is written; or None
    cdef int64_t noted_end                  # of what it knows
    cdef public PageReader pages            # who reads what is not in the page cache; or None

    # One write at the end. On any failure the file is cut back to where it was (or the object
    # refuses further writes if even that fails) and OSError is raised: size_bytes never passes a
    # failed append.
    cpdef int append(self, data) except -1      # any buffer
    # The same for memory; goes through append() where a Python subclass may have replaced it.
    # patient: from a thread that may wait, so that the GIL is given away whatever the size.
    cdef int append_pointer(
        self, const uint8_t* data, Py_ssize_t size, bint patient=*) except -1
    # The same for memory that lies apart, of so many bytes together; the parts are used up.
    cdef int append_parts(self, iovec* parts, int count, Py_ssize_t size) except -1
    # Whether ``size`` bytes can be appended without asking for disk space first, or waiting for a
    # thread that asks.
    cdef bint has_room(self, Py_ssize_t size) noexcept
    # Over bytes that are there. A failure may leave a part of it written.
    cpdef int overwrite(self, data, int64_t position) except -1
    # Positional; returns the bytes read, fewer only at the end of the file. A Python subclass's
    # read() is asked where there is one.
    cdef Py_ssize_t read_into(self, uint8_t* into, Py_ssize_t size, int64_t position) except -1
    cpdef bytes read(self, Py_ssize_t size, int64_t position)
    cpdef int sync(self) except -1          # fdatasync without the GIL
    cpdef int truncate(self, int64_t size_bytes) except -1
    cpdef int64_t refresh(self) except -1   # another process may have changed the size
    cpdef int preallocate(self, int64_t size_bytes) except -1
    # Others have appended, or cut: where it ends now.
    cpdef int follow(self, int64_t size_bytes) except -1
    cpdef int give_back(self) except -1     # the space that was reserved and is not used
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
