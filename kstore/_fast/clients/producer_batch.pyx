# The batch that a producer fills, and the Delivery of each of its records. A Delivery is only a
# batch and an index, so it costs almost nothing until it is used. It knows no network.

import logging
from _thread import allocate_lock, get_ident
from types import MethodType

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawRealloc
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kstore._fast.record.batch cimport (
    BATCH_HEADER_SIZE, TRANSACTIONAL_MASK, BatchInfo, write_batch_header,
)
from kstore._fast.record.builder cimport RecordBatchBuilder

from kstore.types import TopicPartition


cdef class ProducerBatch(RecordBatchBuilder):
    def __cinit__(self):
        self.base_offset = self.first_offset = self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = -1
        self.level = -1

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size_bytes, True, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.exports -= 1

    @property
    def tp(self):
        return TopicPartition(self.topic, self.partition)

    @property
    def queue_of(self):
        return self.queue

    cdef int grow(self, Py_ssize_t room) except -1:
        cdef uint8_t* data = <uint8_t*>PyMem_RawRealloc(self.data, room)
        if data == NULL:
            raise MemoryError
        self.data = data
        self.room = room
        return 0

    def pack(self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence,
             bint transactional):
        cdef BatchInfo info
        if self.count == 0:
            raise ValueError("the batch has no records: append at least one")
        if self.compression and not self.packed:
            self._compress()
        self.packed = True
        self.sealed = True
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.transactional = transactional
        info.base_offset = self.first_offset if self.first_offset >= 0 else 0
        info.size_bytes = <int32_t>self.size_bytes
        info.partition_leader_epoch = -1
        info.attributes = <int16_t>(
            self.compression | (TRANSACTIONAL_MASK if transactional else 0))
        info.last_offset_delta = self.count - 1
        info.base_timestamp = self.first_timestamp
        info.max_timestamp = self.largest_timestamp
        info.producer_id = producer_id
        info.producer_epoch = producer_epoch
        info.base_sequence = base_sequence
        info.records_count = self.count
        write_batch_header(self.data, &info)

    def bytes(self):
        return PyBytes_FromStringAndSize(<char*>self.data, self.size_bytes)

    cdef int finish(self) except -1:
        cdef list waiters = self.waiters
        cdef list callbacks = self.take_callbacks()
        cdef int32_t i
        self.waiters = None
        self.done = True
        if self.owner is not None:
            self.owner.give_back(self)
            self.owner = None
        if callbacks is not None:
            for first, last, callback in callbacks:
                for i in range(<int32_t>first, <int32_t>last + 1):
                    call_back(callback, delivery_of(self, i))
        if waiters is not None:
            for waiter in waiters:
                waiter()
        return 0

    def complete(self, int64_t base_offset):
        if self.done:
            return
        self.base_offset = base_offset
        self.finish()

    def fail(self, error):
        if self.done:
            return
        self.error = error
        self.finish()

    def move(self, list places):
        """Its records were moved to other batches: places has (batch, index) for each of them."""
        cdef list callbacks
        cdef int32_t i
        if self.done:
            return
        callbacks = self.take_callbacks()
        self.moved = places
        if callbacks is not None:
            for first, last, callback in callbacks:
                for i in range(<int32_t>first, <int32_t>last + 1):
                    delivery_of(self, i).add_done_callback(callback)
        self.finish()

    # Consecutive records usually have the same callback: they share one entry.
    cdef int add_callback(self, int32_t index, object callback) except -1:
        if index == self.run_last + 1 and (callback is self.run or (
                type(callback) is MethodType and callback == self.run)):
            self.run_last = index
            return 0
        if self.run is not None:
            if self.callbacks is None:
                self.callbacks = []
            self.callbacks.append((self.run_first, self.run_last, self.run))
        self.run = callback
        self.run_first = self.run_last = index
        return 0

    cdef list take_callbacks(self):
        cdef list callbacks = self.callbacks
        if self.run is not None:
            callbacks = [] if callbacks is None else callbacks
            callbacks.append((self.run_first, self.run_last, self.run))
        self.callbacks = self.run = None
        return callbacks

    def successors(self):
        """The batches that its records were moved to."""
        return [] if self.moved is None else list({batch: None for batch, _ in self.moved})

    def add_waiter(self, waiter):
        if self.done:
            waiter()
        elif self.waiters is None:
            self.waiters = [waiter]
        else:
            self.waiters.append(waiter)


cdef extern from "Python.h":
    int PyBuffer_FillInfo(
        Py_buffer* view, object exporter, void* buf, Py_ssize_t size, int readonly, int flags
    ) except -1


cdef int call_back(object callback, Delivery delivery) except -1:
    try:
        callback(delivery)
    except Exception:
        logging.getLogger("kstore.clients").exception(
            "a delivery callback failed for a record of %s", delivery.topic)
    return 0


@cython.no_gc
@cython.freelist(512)
cdef class Delivery:
    """The outcome of one record. Awaiting it returns the record's offset, or raises its error."""

    # Finds the record's current batch.
    cdef int settle(self) except -1:
        while self.batch.moved is not None:
            self.batch, self.index = self.batch.moved[self.index]
        return 0

    @property
    def topic(self):
        """The record's topic."""
        return self.batch.topic

    @property
    def partition(self):
        """The record's partition, chosen or given. If the topic is expanded, it may change until
        the record is done (KIP-253).
        """
        self.settle()
        return self.batch.partition

    @property
    def done(self):
        """True if the record was delivered or has failed."""
        self.settle()
        return self.batch.done

    @property
    def offset(self):
        """The record's offset when it is delivered. -1 before that, with acks=0, and for a
        duplicate that the broker detected.
        """
        self.settle()
        return self.batch.base_offset + self.index if self.batch.base_offset >= 0 else -1

    @property
    def error(self):
        """The error if the record failed; otherwise None."""
        self.settle()
        return self.batch.error

    def __repr__(self):
        self.settle()
        state = ("waiting" if not self.batch.done else f"failed: {self.batch.error}"
                 if self.batch.error is not None else f"offset {self.offset}")
        return f"<Delivery {self.batch.topic}-{self.batch.partition} {state}>"

    def add_done_callback(self, callback):
        """Call `callback(delivery)` when the record is delivered or has failed, in the thread of
        the client's loop. If that has already happened, it is called at once, in this thread. The
        callback must not block: it would block the whole client.
        """
        self.settle()
        cdef ProducerBatch batch = self.batch
        if batch.done:
            callback(self)
        else:
            batch.add_callback(self.index, callback)

    @staticmethod
    def of(ProducerBatch batch, int32_t index):
        """The delivery of a record of a batch."""
        return delivery_of(batch, index)

    @property
    def batch_of(self):
        """The batch that the record is in."""
        return self.batch

    def outcome(self):
        """The result of a delivery that is done."""
        self.settle()
        if self.batch.error is not None:
            raise self.batch.error
        return self.offset

    def result(self, timeout=None):
        """Wait up to `timeout` seconds (None: without limit) for the record's offset. Raises the
        record's error if it failed, and TimeoutError if it is not done in time.

        The record's batch stops lingering, unless linger.ms was set. Do not call this in the thread
        of the client's loop, where it raises RuntimeError: await the delivery there.
        """
        self.wait(timeout)
        return self.outcome()

    def wait(self, timeout=None):
        """Like `result`, but the record's error is not raised."""
        self.settle()
        while not self.batch.done:
            owner = self.batch.owner
            if owner.loop_thread == get_ident():
                raise RuntimeError("result() would wait for its own thread: await the delivery, "
                                   "or look at it once it is done")
            owner.hurry(self.batch.queue)
            lock = allocate_lock()
            lock.acquire()
            self.batch.add_waiter(lock.release)
            if not lock.acquire(timeout=-1 if timeout is None else timeout):
                raise TimeoutError(f"the record is not delivered after {timeout} s")
            self.settle()

    def __await__(self):
        return self._settled().__await__()

    async def _settled(self):
        from asyncio import get_running_loop
        self.settle()
        while not self.batch.done:
            loop = get_running_loop()
            self.batch.owner.hurry(self.batch.queue)
            future = loop.create_future()
            self.batch.add_waiter(Waker(loop, future))
            await future
            self.settle()
        return self.outcome()


# Completes an asyncio wait from any thread.
cdef class Waker:
    cdef object loop
    cdef object future
    cdef object thread

    def __init__(self, loop, future):
        self.loop = loop
        self.future = future
        self.thread = get_ident()

    def __call__(self):
        if self.thread == get_ident():
            self.end()
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.end)

    def end(self):
        if not self.future.done():
            self.future.set_result(None)


cdef Delivery delivery_of(ProducerBatch batch, int32_t index):
    cdef Delivery delivery = Delivery.__new__(Delivery)
    delivery.batch = batch
    delivery.index = index
    return delivery
