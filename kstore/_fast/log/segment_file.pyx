# One append-only file: append at the end with one write, positional reads, fdatasync and
# truncation, without the GIL if it may take long. It parses nothing and knows no log.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EBADF, EINTR, EIO, EOPNOTSUPP, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import os

from kstore._fast.log.clock cimport now_us

cdef extern from "Python.h":
    int PyBUF_READ

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* into, size_t size, int64_t position)
    ssize_t pwrite(int fd, const void* data, size_t size, int64_t position)
    int ftruncate(int fd, int64_t size)
    int getpid()

cdef extern from * nogil:
    """
    #include <fcntl.h>
    #include <sys/resource.h>
    #include <unistd.h>
    /* Returns when the data is on disk: on macOS fsync() leaves it in the disk's cache. */
    static int kstore_sync(int fd) {
    #ifdef F_FULLFSYNC
        if (fcntl(fd, F_FULLFSYNC) == 0) return 0;
        return fsync(fd);           /* a file system that does not know it */
    #else
        return fdatasync(fd);
    #endif
    }
    /* How often the calling thread has slept, for a disk or a lock; elsewhere a new number. */
    static int64_t kstore_sleeps(void) {
    #ifdef RUSAGE_THREAD
        struct rusage used;
        if (getrusage(RUSAGE_THREAD, &used) == 0) return used.ru_nvcsw;
    #endif
        static _Thread_local int64_t calls;
        return -++calls;
    }
    """
    int kstore_sync(int fd)
    int64_t kstore_sleeps()

cdef extern from "<sys/uio.h>" nogil:
    ssize_t pwritev(int fd, const iovec* parts, int count, int64_t position)

cdef extern from "<fcntl.h>" nogil:
    """
    # ifndef FALLOC_FL_KEEP_SIZE
    # define FALLOC_FL_KEEP_SIZE 1
    static int kstore_fallocate(int fd, int64_t from,
                                int64_t size) { errno = EOPNOTSUPP; return -1; }
    # else
    static int kstore_fallocate(int fd, int64_t from, int64_t size) {
        return fallocate(fd, FALLOC_FL_KEEP_SIZE, from, size);
    }
    # endif
    static int kstore_duplicate(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 3); }
    """
    int kstore_fallocate(int fd, int64_t start, int64_t size)
    int kstore_duplicate(int fd)
    int close(int fd)

cdef enum:
    RELEASE_GIL_ABOVE = 32768           # a smaller copy is cheaper than releasing the GIL
    # For more in one call, the system takes larger pieces of memory. On a virtual machine these
    # often have to come from the host first: up to eight times the CPU time of the write.
    WRITTEN_AT_ONCE = 524288
    # A growing file reserves disk space ahead: as much as its size, but no more than this. A write
    # into reserved space costs the file system a fifth less. Small files reserve none.
    RESERVE_FROM = 262144
    RESERVE_AT_MOST = 8388608
    # If every write is forced to disk, zeros are written ahead. A write over them changes neither
    # size nor block map, so the file system's journal has nothing to commit.
    ZEROS_AT_LEAST = 262144
    ZEROS_AT_MOST = 2097152
    ZEROS_FOR_WRITES_BELOW = 131072
    # The end of a file is not written early: the next append goes to the same pages.
    NOTED_IN = 65536
    NOTED_AT_MOST = 33554432


# Writes all of it, or returns the errno.
cdef int write_all(int fd, const uint8_t* data, Py_ssize_t size, int64_t position) noexcept nogil:
    cdef iovec part
    part.iov_base = <void*>data
    part.iov_len = <size_t>size
    return write_parts(fd, &part, 1, position)


# The same for parts that lie apart; they are used up.
cdef int write_parts(int fd, iovec* parts, int count, int64_t position) noexcept nogil:
    cdef ssize_t n
    while count > 0:
        if parts.iov_len == 0:
            parts += 1
            count -= 1
            continue
        if count == 1:              # makes an append 2% cheaper
            n = pwrite(fd, parts.iov_base, min(parts.iov_len, <size_t>WRITTEN_AT_ONCE), position)
        else:
            n = pwritev(fd, parts, count, position)
        if n < 0:
            if errno == EINTR:
                continue
            return errno
        if n == 0:
            return EIO
        position += n
        while count > 0 and <size_t>n >= parts.iov_len:
            n -= parts.iov_len
            parts += 1
            count -= 1
        if n > 0:
            parts.iov_base = <uint8_t*>parts.iov_base + n
            parts.iov_len -= <size_t>n
    return 0


# The bytes read, fewer only at the end of the file; or minus the errno.
cdef Py_ssize_t read_all(int fd, uint8_t* into, Py_ssize_t size, int64_t position) noexcept nogil:
    cdef Py_ssize_t done = 0
    cdef ssize_t n
    while done < size:
        n = pread(fd, into + done, <size_t>(size - done), position + done)
        if n < 0:
            if errno == EINTR:
                continue
            return -errno
        if n == 0:
            break
        done += n
    return done


cdef class SegmentFile:
    def __cinit__(self):
        self.fd = -1

    def __init__(self, str path not None, *, bint writable=False, bint create=False):
        cdef int flags = os.O_CLOEXEC | (os.O_RDWR if writable else os.O_RDONLY)
        if create:
            flags |= os.O_CREAT
        self.path = path
        self.fd = os.open(path, flags, 0o644)
        self.writable = writable
        self.plain = type(self) is SegmentFile
        self.size_bytes = os.fstat(self.fd).st_size
        self.durable_bytes = 0
        self.allocated_bytes = self.noted_end = self.size_bytes
        self.reserves = self.plain and writable
        self.process = getpid()

    def __dealloc__(self):
        if self.fd >= 0:
            if self.write_back is not None:
                self.write_back.forget(<uint64_t><void*>self)
            fd = self.fd
            self.fd = -1
            os.close(fd)

    def _fail(self, int error):
        raise OSError(error, os.strerror(error), self.path)

    cdef int _check_writable(self) except -1:
        if self.fd < 0:
            raise OSError(EBADF, "the segment file is closed", self.path)
        if not self.writable:
            raise OSError(EBADF, "the segment file is open for reading only", self.path)
        if self.broken:
            raise OSError(EIO, "an earlier failed write could not be cut back", self.path)
        return 0

    cpdef int append(self, data) except -1:
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            return self._write_one(<const uint8_t*>view.buf, view.len, False) if view.len else 0
        finally:
            PyBuffer_Release(&view)

    cdef int append_pointer(
        self, const uint8_t* data, Py_ssize_t size, bint patient=False
    ) except -1:
        if self.plain:
            return self._write_one(data, size, patient)
        if size > 0:
            self.append(PyMemoryView_FromMemory(<char*>data, size, PyBUF_READ))
        return 0

    cdef int append_parts(self, iovec* parts, int count, Py_ssize_t size) except -1:
        cdef bytearray joined
        cdef int i
        if self.plain:
            return self._write(parts, count, size, False)
        joined = bytearray()
        for i in range(count):
            joined += (<char*>parts[i].iov_base)[:parts[i].iov_len]
        return self.append_pointer(<const uint8_t*><char*>joined, size)

    cdef bint has_room(self, Py_ssize_t size) noexcept:
        cdef int64_t end = self.size_bytes + size
        if self.allocating:
            return False
        if end <= self.allocated_bytes or not self.reserves:
            return True
        return end < RESERVE_FROM and not (self.zeros_ahead and size < ZEROS_FOR_WRITES_BELOW)

    cpdef int overwrite(self, data, int64_t position) except -1:
        cdef Py_buffer view
        cdef int error
        self._check_writable()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if position < 0 or view.len > self.size_bytes - position:
                raise ValueError(
                    f"cannot write {view.len} bytes at {position}: the file has "
                    f"{self.size_bytes} bytes")
            with nogil:
                error = write_all(self.fd, <const uint8_t*>view.buf, view.len, position)
            if error:
                self._fail(error)
        finally:
            PyBuffer_Release(&view)
        return 0

    cdef int _write_one(self, const uint8_t* data, Py_ssize_t size, bint patient) except -1:
        cdef iovec part
        part.iov_base = <void*>data
        part.iov_len = <size_t>size
        return self._write(&part, 1, size, patient)

    cdef int _write(self, iovec* parts, int count, Py_ssize_t size, bint patient) except -1:
        cdef int error
        cdef int64_t sleeps
        self._check_writable()
        if self.size_bytes + size > self.allocated_bytes and self.reserves:
            self._reserve(size)
        if patient:
            with nogil:                     # measures the write, not the wait for the GIL
                sleeps = kstore_sleeps()
                error = self._write_parts(parts, count)
                if kstore_sleeps() == sleeps:
                    self.write_us = 0       # it waited only for a core, if at all
        elif size > RELEASE_GIL_ABOVE:
            with nogil:
                error = self._write_parts(parts, count)
        else:
            error = self._write_parts(parts, count)
        if error:
            if self._cut() != 0:
                self.broken = True
            self.allocated_bytes = self.size_bytes
            self.reserving = False
            self._fail(error)
        self.size_bytes += size
        if self.timed and not self.reserving and self._wants_room():
            self.reserving = True
            try:
                self.reserve_later(self)
            except Exception:               # the write succeeded; later ones reserve themselves
                self.reserving = False
                self.reserve_later = None
        if self.write_back is not None:
            self.write_back.loose_bytes += size
            if self.size_bytes - self.noted_end >= self.write_back.step_bytes \
                    or self.write_back.loose_bytes >= self.write_back.loose_limit:
                self._note_written()
        return 0

    cdef int _write_parts(self, iovec* parts, int count) noexcept nogil:
        cdef int64_t began = now_us() if self.timed else 0
        cdef int error = write_parts(self.fd, parts, count, self.size_bytes)
        self.write_us = now_us() - began if self.timed else 0
        return error

    # Notes what was written since the last note, so that it is written to disk early.
    cdef int _note_written(self) except -1:
        cdef WriteBack write_back = self.write_back
        cdef int64_t size
        if write_back.loose_bytes >= write_back.loose_limit:
            write_back.regard_loose()
        size = self.size_bytes - self.size_bytes % NOTED_IN - self.noted_end
        if size > NOTED_AT_MOST:            # it was off: the system has written the rest
            self.noted_end += size - NOTED_AT_MOST
            size = NOTED_AT_MOST
        if size + NOTED_IN > write_back.step_bytes and size > 0 \
                and write_back.note(self.fd, self.noted_end, size, <uint64_t><void*>self):
            self.noted_end += size
        return 0

    # Truncates to the known valid size. Not 0: it failed; see errno.
    cdef int _cut(self) noexcept:
        cdef int failed
        with nogil:
            failed = ftruncate(self.fd, self.size_bytes)
        return failed

    # Reserves disk space for this write and later ones. If that fails, it is not an error: the
    # write may fail then.
    cdef void _reserve(self, Py_ssize_t size) noexcept:
        cdef int64_t end = self.size_bytes + size
        cdef int failed
        if self.zeros_ahead and size < ZEROS_FOR_WRITES_BELOW:
            self._write_zeros(end)
            return
        if end < RESERVE_FROM:
            return
        end += min(end, <int64_t>RESERVE_AT_MOST)
        with nogil:
            failed = kstore_fallocate(self.fd, self.size_bytes, end - self.size_bytes)
        if failed == 0:
            self.allocated_bytes = end
        else:
            self.reserves = False

    # Whether a thread should reserve space now, so that the loop's next appends have it.
    cdef bint _wants_room(self) noexcept:
        return (
            self.reserve_later is not None and self.reserves and not self.zeros_ahead
            and self.size_bytes >= RESERVE_FROM // 2
            and self.allocated_bytes - self.size_bytes
            < min(self.size_bytes, <int64_t>RESERVE_AT_MOST) // 2)

    def reserve_ahead(self):
        cdef int64_t start = max(self.allocated_bytes, self.size_bytes)
        cdef int64_t end = self.size_bytes + min(self.size_bytes, <int64_t>RESERVE_AT_MOST)
        cdef int own, failed
        if not self.reserving:
            return
        own = -1 if self.fd < 0 or end <= start else kstore_duplicate(self.fd)  # it may be closed
        if own < 0:
            self.reserving = False          # a later write asks again
            return
        self.allocating = True
        with nogil:
            failed = kstore_fallocate(own, start, end - start)
            close(own)
        self.allocating = False
        # If it was closed or cut meanwhile, some spare space stays until the file is cut again.
        if self.reserving:
            self.reserving = False
            if failed:
                self.reserves = False
            else:
                self.allocated_bytes = max(self.allocated_bytes, end)

    cdef void _write_zeros(self, int64_t end) noexcept:
        cdef Py_ssize_t size = max(ZEROS_AT_LEAST, min(end, <int64_t>ZEROS_AT_MOST))
        cdef void* zeros = PyMem_RawCalloc(size, 1)
        cdef int error
        if zeros == NULL:
            return
        with nogil:
            error = write_all(self.fd, <const uint8_t*>zeros, size, self.size_bytes)
        PyMem_RawFree(zeros)
        if error:
            self._cut()
            self.zeros_ahead = self.reserves = False
        else:
            self.allocated_bytes = self.size_bytes + size

    cdef Py_ssize_t read_into(self, uint8_t* into, Py_ssize_t size, int64_t position) except -1:
        cdef bytes data
        if self.plain:
            return self._read(into, size, position)
        data = self.read(size, position)
        if PyBytes_GET_SIZE(data) > size:
            raise ValueError(f"read() returned {len(data)} bytes, not at most {size}")
        memcpy(into, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        return PyBytes_GET_SIZE(data)

    cdef Py_ssize_t _read(self, uint8_t* into, Py_ssize_t size, int64_t position) except -1:
        cdef Py_ssize_t n
        if self.fd < 0:
            raise OSError(EBADF, "the segment file is closed", self.path)
        if position < 0:
            raise ValueError(f"position is {position}: pass 0 or more")
        if size > RELEASE_GIL_ABOVE:
            with nogil:
                n = read_all(self.fd, into, size, position)
        else:
            n = read_all(self.fd, into, size, position)
        if n < 0:
            self._fail(<int>-n)
        return n

    cpdef bytes read(self, Py_ssize_t size, int64_t position):
        cdef bytes data = PyBytes_FromStringAndSize(NULL, size)
        cdef Py_ssize_t n = self._read(<uint8_t*>PyBytes_AS_STRING(data), size, position)
        return data if n == size else data[:n]

    cpdef int sync(self) except -1:
        cdef int64_t covered = self.size_bytes
        cdef int failed, error
        if self.fd < 0:
            raise OSError(EBADF, "the segment file is closed", self.path)
        with nogil:
            failed = kstore_sync(self.fd)
            error = errno
        if failed:
            self._fail(error)
        if covered > self.size_bytes:
            covered = self.size_bytes           # truncated meanwhile
        if covered > self.durable_bytes:
            self.durable_bytes = covered
        if covered > self.noted_end:
            if self.write_back is not None:
                self.write_back.loose_bytes -= covered - self.noted_end
            self.noted_end = covered
        return 0

    cpdef int truncate(self, int64_t size_bytes) except -1:
        cdef int failed, error
        if self.fd < 0 or not self.writable:
            raise OSError(EBADF, "the segment file is closed or open for reading only", self.path)
        if size_bytes < 0 or size_bytes > self.size_bytes:
            raise ValueError(
                f"cannot truncate to {size_bytes}: the file has {self.size_bytes} bytes")
        with nogil:
            failed = ftruncate(self.fd, size_bytes)
            error = errno
        if failed:
            self._fail(error)
        self.size_bytes = size_bytes
        self.allocated_bytes = size_bytes
        self.reserving = False
        self.noted_end = min(self.noted_end, size_bytes)
        self.broken = False
        if self.durable_bytes > size_bytes:
            self.durable_bytes = size_bytes
        return 0

    cpdef int64_t refresh(self) except -1:
        self.size_bytes = os.fstat(self.fd).st_size
        return self.size_bytes

    cpdef int preallocate(self, int64_t size_bytes) except -1:
        cdef int failed
        if size_bytes <= self.allocated_bytes:
            return 0
        self._check_writable()
        with nogil:
            failed = kstore_fallocate(self.fd, self.size_bytes, size_bytes - self.size_bytes)
        if failed == 0:
            self.allocated_bytes = size_bytes
        elif errno != EOPNOTSUPP:
            self._fail(errno)
        return 0

    def share(self):
        self.shared = True
        self.reserves = self.zeros_ahead = self.reserving = False

    cpdef int follow(self, int64_t size_bytes) except -1:
        self.noted_end = max(self.noted_end + size_bytes - self.size_bytes, <int64_t>0)
        self.size_bytes = size_bytes
        self.allocated_bytes = min(self.allocated_bytes, size_bytes)
        self.durable_bytes = min(self.durable_bytes, size_bytes)
        return 0

    cpdef int give_back(self) except -1:
        self.reserving = False
        if self.allocated_bytes > self.size_bytes:
            self.truncate(self.size_bytes)
        return 0

    cpdef int close(self) except -1:
        self.reserving = False
        # A forked child knows an old size.
        if self.fd >= 0 and self.writable and not self.shared and self.process == getpid() \
                and self.allocated_bytes > self.size_bytes:
            self._cut()                             # only spare space is at stake
        if self.fd >= 0 and self.write_back is not None:
            self.write_back.forget(<uint64_t><void*>self)
        if self.fd >= 0:
            fd = self.fd
            self.fd = -1
            os.close(fd)
        return 0

    def __repr__(self):
        return f"SegmentFile({self.path!r}, {self.size_bytes} bytes)"
