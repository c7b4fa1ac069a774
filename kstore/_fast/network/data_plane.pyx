"""The data plane: the state that all connections of a broker share, its buffers, limits and the
table of APIs.

It does not read or write sockets (connection.pyx does) and does not answer requests.
"""

from collections import deque
from weakref import WeakValueDictionary

from libc.stdlib cimport free, malloc
from libc.string cimport memset

from kstore._fast.log.clock cimport now_us
from kstore._fast.record.buffer cimport load_int16

cdef enum:
    MAX_ANSWERS_BYTES = 8 * 1024 * 1024     # of pre-encoded answers
    ANSWER_OVERHEAD_BYTES = 256
    LOOK_US = 500
    # Measured: 1 MB takes about 0.2 ms to read, and 0.3 ms to check and write.
    TURN_BYTES = 1024 * 1024
    SHARED_TURN_BYTES = 4 * 1024 * 1024     # of all connections that use their whole share
    LEAST_TURN_BYTES = 64 * 1024            # smaller pieces cost more than they help
    SLICE_US = 500                          # shorter: pipelined commits take more CPU time
    NOTED_PART = 4                          # of it: below that it is not called in the next turn

cdef class DataPlane:
    """What all connections of one broker share: the partitions, the paths, the buffers
    and the limits.
    """

    def __cinit__(self):
        self.read_capacity = READ_BYTES
        self.read_buffer = <uint8_t*>malloc(READ_BYTES)
        if self.read_buffer == NULL:
            raise MemoryError("no memory for the read buffer")
        memset(self.apis, 0, sizeof(self.apis))
        for key in range(API_LIMIT):
            self.apis[key].max_version = -1

    def __dealloc__(self):
        free(self.read_buffer)

    def __init__(
        self, server, PartitionTable table, ProducePath produce, FetchPath fetch, *,
        int64_t max_request_bytes, int64_t max_queued_bytes, int max_parked=256,
        int64_t max_elements=100000, LoopWatch watch=None
    ):
        self.server = server
        self.watch = LoopWatch() if watch is None else watch
        self.times = RequestTimes()
        self.table = table
        self.produce = produce
        self.fetch = fetch
        self.max_request_bytes = max_request_bytes
        self.max_queued_bytes = max_queued_bytes
        self.max_parked = max_parked
        self.max_elements = max_elements
        self.turn_us = 2000
        self.turn_bytes = TURN_BYTES
        self.takers = []
        self.slice_us = SLICE_US
        self.waiting = deque()
        self.answers = {}
        self.answers_errors = {}
        self.out = AnswerBuffer(64 * 1024)
        self.connections = {}
        self.pins = WeakValueDictionary()
        self.starved = []

    def serve_api(
        self, int api_key, int min_version, int max_version, int flexible_from, bint cached,
        bint in_turns=False
    ):
        """Serve an API in these versions; cached: its answer depends only on its bytes and
        the image; in_turns: each turn of the loop handles a slice of all such requests.
        """
        cdef int place = api_place(api_key)
        if place < 0:
            raise ValueError(
                f"api key {api_key} is neither in 0..{API_LIMIT - OWN_APIS - 1} nor in "
                f"{OWN_API}..{OWN_API + OWN_APIS - 1}")
        self.apis[place].min_version = min_version
        self.apis[place].max_version = max_version
        self.apis[place].flexible_from = flexible_from
        self.apis[place].cached = cached
        self.apis[place].in_turns = in_turns

    def forget_answers(self):
        """The metadata image has changed: drop cached answers."""
        self.answers.clear()
        self.answers_errors.clear()
        self.answers_bytes = 0

    def request_counts(self):
        """The number of handled requests of each API key."""
        return {
            api_key_at(place): self.apis[place].requests
            for place in range(API_LIMIT) if self.apis[place].requests
        }

    def open_connections(self):
        """The open connections."""
        return list(self.connections)

    def close_idle(self, int64_t idle_ms):
        """Close connections without a request for that long; free the buffers of inactive
        ones.
        """
        for connection in list(self.connections):
            connection.rest(idle_ms)

    cdef int64_t share(self) noexcept:
        if self.sharers <= SHARED_TURN_BYTES // TURN_BYTES:
            return self.turn_bytes
        return min(self.turn_bytes, max(SHARED_TURN_BYTES // self.sharers, LEAST_TURN_BYTES))

    cdef int note_taker(self, connection) except -1:
        """A connection has used so much of this turn that it is called in the next one."""
        self.takers.append(connection)
        return self.announce()

    cdef int announce(self) except -1:
        if not self.announced:
            self.announced = True
            self.server.call_soon(self.next_turn)
        return 0

    cdef bint puts_off(self, connection, const uint8_t* frame, Py_ssize_t size) except? True:
        """Whether the request is handled in turns and must wait for earlier ones or for the next
        turn, which unmutes its connection.
        """
        cdef int place = api_place(load_int16(frame)) if size >= 2 else -1
        self.in_turns = place >= 0 and self.apis[place].in_turns
        if not self.in_turns:
            return False
        if self.slice_spent_us < self.slice_us and (self.draining or not self.waiting):
            return False
        self.waiting.append(connection)
        self.announce()
        return True

    cdef int request_done(self) except -1:
        """The request that was passed to `puts_off` is handled."""
        cdef int64_t before_us = self.watch.last_us
        self.watch.request_done(now_us())
        if self.in_turns:
            self.slice_spent_us += self.watch.last_us - before_us
            if self.slice_spent_us >= self.slice_us // NOTED_PART:
                return self.announce()
        return 0

    def next_turn(self):
        """All connections have had their turn: those that have more to do continue."""
        takers = self.takers
        self.announced = False
        self.slice_spent_us = 0
        self.takers = []
        self.sharers = self.hungry
        self.hungry = 0
        for connection in takers:
            connection.begin_turn()
        self.draining = True
        try:
            while self.waiting and self.slice_spent_us < self.slice_us:
                self.waiting.popleft().unmute(SLICE_OVER)
        finally:
            self.draining = False
            if self.waiting:
                self.announce()

    cdef int keep_answer(self, tuple key, bytes answer) except -1:
        """Cache an encoded answer; if there are too many, empty the cache first."""
        cdef int64_t size = len(answer) + len(<bytes>key[3]) + ANSWER_OVERHEAD_BYTES
        if self.answers_bytes + size > MAX_ANSWERS_BYTES:
            self.forget_answers()
        if size <= MAX_ANSWERS_BYTES:
            self.answers[key] = answer
            self.answers_bytes += size
            if self.last_errors is not None:
                self.answers_errors[key] = self.last_errors
        return 0

    cdef int count_kept(self, tuple key) except -1:
        """A cached answer is sent again, with its errors."""
        found = self.answers_errors.get(key)
        return 0 if found is None else self.count_errors(key[0], found)

    cpdef int count_errors(self, int api_key, dict found) except -1:
        """Count the errors of an answer: code -> number."""
        self.last_errors = found
        for code, count in found.items():
            self.table.errors.add(api_key, code, count)
        return 0

    cdef int look(self) except -1:
        """Before leaders are named: find out which brokers have just ended."""
        cdef int64_t now = now_us()
        if now - self.looked_us >= LOOK_US:
            self.looked_us = now
            self.look_at_peers()
        return 0

    cdef int release(self, int64_t size) except -1:
        """The shared budget has free bytes again: let waiting connections try."""
        self.queued_bytes -= size
        if self.starved:
            waiting = self.starved
            self.starved = []
            for connection in waiting:
                self.server.call_soon(connection.resume)
        return 0
