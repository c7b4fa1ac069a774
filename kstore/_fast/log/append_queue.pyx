"""Appends that may have to wait for the disk: two threads for each log dir, one for small batches
and one for bulk, do them in order, and notify the loop.

All queued appends of one log are in one lane, so they keep their order; if one fails, all that are
queued after it fail. A third thread reports what hangs, a fourth reserves disk space before it is
needed. The threads start with the first queued append, and wait without the GIL. The caller decides
what is appended at once, and what happens after an append.
"""

from libc.errno cimport EIO
from libc.stdint cimport int32_t, int64_t
from posix.time cimport timespec

import threading
from collections import deque

from kstore._fast.disk.disk_probe cimport DiskProbe, overdue_ms
from kstore._fast.disk.threads cimport (
    pthread_cond_destroy, pthread_cond_init, pthread_cond_signal, pthread_cond_timedwait,
    pthread_cond_wait, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock,
    pthread_mutex_unlock, until_ms)
from kstore._fast.disk.write_back cimport WriteBack
from kstore._fast.log.clock cimport now_us
from kstore._fast.log.dir_calm cimport LANES
from kstore._fast.log.log_core cimport DIRECT_BYTES
from kstore._fast.log.segment_file cimport SegmentFile
from kstore._fast.record.memory cimport MemoryView, view_of
from kstore._fast.record.nested cimport NestedBatches

cdef enum:
    SAID_AFTER_US = 1000000         # an append that hangs for this time is reported
    SAID_AGAIN_US = 30000000
    # after this time without a write, the disk itself makes writers wait
    WAITS_FOR_ROOM_MS = 10000
    WATCH_RESTS_US = 2000000        # the watch sleeps if nothing was queued for this time
    WATCH_MS = 500
    FOR_EVER = -1

_NAMES = ("kstore-append", "kstore-append-bulk")


cdef class AppendJob:
    """One append that a thread does."""

    cdef int ended(self) except -1:
        return 0

    cdef int go_on(self) except -1:
        return 0

    cdef int take(self, object data) except -1:
        """Append these batches: a copy of bytes, or a bytearray or NestedBatches that must not
        change any more.
        """
        cdef MemoryView view
        if type(data) is NestedBatches:
            self.keeps = data
            self.data = (<NestedBatches>data).data
            self.size = (<NestedBatches>data).size_bytes
            self.summed = True
            return 0
        self.keeps = data if type(data) is bytearray else bytearray(data)
        view = view_of(self.keeps, True)
        self.data = view.data
        self.size = view.size

    @property
    def error_code(self):
        """Kafka's error code if nothing was appended; without a problem."""
        return self.result.error_code

    @property
    def base_offset(self):
        """The offset of the first record."""
        return self.result.base_offset

    @property
    def last_offset(self):
        """The offset of the last record."""
        return self.result.last_offset

    @property
    def duplicate(self):
        """Whether the log had it already."""
        return bool(self.result.duplicate)

    @property
    def log_end_offset(self):
        """The log end offset after the append."""
        return self.result.log_end_offset


cdef class CallbackJob(AppendJob):
    """An append that calls back."""

    cdef int go_on(self) except -1:
        callback, self.callback = self.callback, None       # it may keep this job: no cycle
        self.keeps = None
        callback(self)
        return 0


cdef class Lane:
    """The jobs of one thread. The GIL protects the list; its thread waits without the GIL."""

    def __cinit__(self):
        pthread_mutex_init(&self.mutex, NULL)
        pthread_cond_init(&self.changed, NULL)
        self.jobs = deque()

    def __dealloc__(self):
        pthread_cond_destroy(&self.changed)
        pthread_mutex_destroy(&self.mutex)

    cdef void wake(self) noexcept nogil:
        pthread_mutex_lock(&self.mutex)
        if not self.woken:
            self.woken = True
            pthread_cond_signal(&self.changed)
        pthread_mutex_unlock(&self.mutex)

    cdef void wait(self, int64_t timeout_ms) noexcept nogil:
        """Wait until it is woken, was woken since the last wait, or the time is over; negative:
        forever.
        """
        cdef timespec until = until_ms(timeout_ms)
        pthread_mutex_lock(&self.mutex)
        while not self.woken:
            if timeout_ms < 0:
                pthread_cond_wait(&self.changed, &self.mutex)
            elif pthread_cond_timedwait(&self.changed, &self.mutex, &until) != 0:
                break
        self.woken = False
        pthread_mutex_unlock(&self.mutex)


cdef class AppendQueue:
    """The appends to the logs of one log dir that threads do."""

    def __init__(self, str path not None, DirCalm calm not None, warn):
        self.path = path
        self.calm = calm
        self.warn = warn
        self.forget()

    def forget(self):
        """No threads and no jobs: at the start, and in a child process."""
        self.threads = {}
        self.lanes = [Lane() for _ in range(LANES)]
        self.watch = Lane()
        self.space = Lane()
        self.watched_us = 0
        self.done = []
        self.told = False
        self.calm.watch_disk(None)

    def serve(self, call_threadsafe, run_later=None):
        """Take appends from the loop of this call_soon_threadsafe. ``run_later(run)``, for
        simulations: has ``run()`` called once for each job, where there are no threads.
        """
        self.call_threadsafe = call_threadsafe
        self.run_later = run_later
        self.calm.untimed = run_later is not None
        self.calm.threaded = True
        if run_later is None and self.calm.probe is None:
            self.calm.watch_disk(DiskProbe(self.path))

    # -- on the loop

    def append(self, LogCore core not None, data, int32_t leader_epoch, str origin, callback):
        """Append a copy of ready batches; ``callback(job)`` is called on the loop when that is
        done, or has failed.
        """
        cdef CallbackJob job = CallbackJob.__new__(CallbackJob)
        from kstore._fast.log.log_core import ORIGINS

        job.core = core
        job.take(bytearray(data))
        job.leader_epoch = leader_epoch
        job.origin = ORIGINS[origin]
        job.callback = callback
        self.submit(job)

    cdef int submit(self, AppendJob job) except -1:
        cdef LogCore core = job.core
        if self.call_threadsafe is None:
            raise RuntimeError(f"{self.path} has no threads for appends: call serve() first")
        if core.queued == 0:
            core.lane = LANE_BULK if job.size > DIRECT_BYTES or self.calm.is_over_budget() \
                else LANE_SMALL
        core.queued += 1
        core.given += 1
        job.number = core.given
        job.term = core.term
        self.appends += 1
        if core.held is not None:
            core.held.append(job)
            return 0
        return self.enter_lane(job)

    def hold(self, LogCore core not None):
        """From now on appends to this log wait until `release`."""
        core.held = []

    def release(self, LogCore core not None):
        """Do the appends that waited, in order."""
        held, core.held = core.held, None
        for job in held:
            self.enter_lane(job)

    cdef int enter_lane(self, AppendJob job) except -1:
        cdef LogCore core = job.core
        cdef Lane lane = <Lane>self.lanes[core.lane]
        lane.jobs.append(job)
        if self.run_later is not None:
            self.run_later(self.run_next)
            return 0
        if _NAMES[core.lane] not in self.threads:
            self.start(_NAMES[core.lane], self.run_lane, core.lane)
        lane.wake()
        if now_us() - self.watched_us > WATCH_RESTS_US // 2:
            self.watched_us = now_us()
            if "kstore-append-watch" not in self.threads:
                self.start("kstore-append-watch", self.run_watch)
            self.watch.wake()
        return 0

    def reserve(self, SegmentFile file not None):
        """Have a thread reserve disk space, so that the loop's appends never have to."""
        if self.call_threadsafe is None or self.run_later is not None or self.stopping:
            return
        self.space.jobs.append(file)
        if "kstore-append-space" not in self.threads:
            self.start("kstore-append-space", self.run_space)
        self.space.wake()

    def start(self, name, run, *args):
        """Start a thread that ends with the process."""
        thread = threading.Thread(target=run, args=args, name=name, daemon=True)
        thread.start()
        self.threads[name] = thread

    def run_done(self):
        """Report finished jobs to their callers."""
        cdef AppendJob job
        self.told = False                           # first: a thread may add to the list now
        done, self.done = self.done, []
        for job in done:
            job.core.queued -= 1
        for job in done:
            try:
                job.ended()
            except Exception as problem:
                self.warn(f"{_name(job)}: the callback of an append failed: {problem!r}")
        for job in done:
            try:
                job.go_on()
            except Exception as problem:
                self.warn(f"{_name(job)}: work after an append failed: {problem!r}")

    # -- the threads

    def run_lane(self, int number):
        """A lane's thread."""
        cdef Lane lane = <Lane>self.lanes[number]
        while True:
            while lane.jobs:
                self.run(lane, number, lane.jobs.popleft())
            if self.stopping:
                return
            with nogil:
                lane.wait(FOR_EVER)

    def run_space(self):
        """The thread that reserves disk space."""
        while not self.stopping:
            while self.space.jobs:
                self.space.jobs.popleft().reserve_ahead()
            with nogil:
                self.space.wait(FOR_EVER)

    def run_next(self):
        """Do one job here: the first of the lane that has any; False if none has."""
        cdef int number
        cdef Lane lane
        for number in range(LANES):
            lane = <Lane>self.lanes[number]
            if lane.jobs:
                self.run(lane, number, lane.jobs.popleft())
                return True
        return False

    cdef int run(self, Lane lane, int number, AppendJob job) except -1:
        cdef LogCore core = job.core
        cdef WriteBack write_back = self.calm.write_back
        cdef int64_t began
        lane.running = job
        if number == LANE_BULK and write_back is not None and write_back.is_over_budget():
            with nogil:
                write_back.wait_for_room(WAITS_FOR_ROOM_MS)
        began = now_us()
        self.calm.began_us[number] = began
        try:
            if job.number <= core.failed_until:
                raise OSError(EIO, "an append before it failed", core.active.path)
            core.append_seen(
                job.data, job.size, job.leader_epoch, job.origin, job.seen, &job.result, job.term,
                job.summed)
        except Exception as problem:                # any exception is reported to the caller
            job.problem = problem
            core.failed_until = core.given
        self.calm.began_us[number] = 0
        lane.running = None
        if now_us() - began > SAID_AFTER_US:
            self.warn(f"an append to {_name(job)} in {self.path} took "
                      f"{(now_us() - began) / 1e6:.1f} s")
        self.done.append(job)
        return self.tell_loop()

    cdef int tell_loop(self) except -1:
        if not self.told and self.call_threadsafe is not None:
            self.told = True
            self.call_threadsafe(self.run_done)
        return 0

    def run_watch(self):
        """The thread that reports what hangs, even if all others must wait for it."""
        cdef int64_t[2] said
        cdef bint busy
        # the disk has not responded, and that was reported
        cdef bint owed = False
        said[0] = said[1] = 0
        while not self.stopping:
            with nogil:
                busy = owed or now_us() - self.watched_us < WATCH_RESTS_US or self.hangs()
                self.watch.wait(WATCH_MS if busy else FOR_EVER)
                busy = owed or self.hangs()
            if busy:
                owed = self.say_disk(owed)
                self.say_appends(said)

    cdef bint say_disk(self, bint owed) except -1:
        """Report once that the disk does not respond, and once that it responds again."""
        cdef int64_t waited_ms = self.disk_waits_ms()
        if waited_ms * 1000 > SAID_AFTER_US:
            if not owed:
                self.warn(f"the disk of {self.path} has not answered for {waited_ms / 1e3:.1f} s: "
                          "appends there are left to threads until it does")
            return True
        if owed and waited_ms == 0:
            self.warn(f"the disk of {self.path} answers again")
            return False
        return owed

    cdef int say_appends(self, int64_t* said) except -1:
        cdef int64_t now, began
        cdef int number
        cdef AppendJob job
        for number in range(LANES):
            began = self.calm.began_us[number]
            job = (<Lane>self.lanes[number]).running
            now = now_us()
            if began == 0 or job is None or now - began < SAID_AFTER_US \
                    or now - max(began, said[number]) < (
                        SAID_AGAIN_US if said[number] > began else SAID_AFTER_US):
                continue
            said[number] = now
            self.warn(
                f"an append to {_name(job)} in {self.path} has been waiting for the disk for "
                f"{(now - began) / 1e6:.1f} s; {len((<Lane>self.lanes[number]).jobs)} more "
                "wait behind it")
        return 0

    cdef int64_t disk_waits_ms(self) noexcept nogil:
        return 0 if self.calm.probe is None else overdue_ms(self.calm.probe)

    cdef bint hangs(self) noexcept nogil:
        cdef int64_t now = now_us()
        cdef int number
        for number in range(LANES):
            if self.calm.began_us[number] and now - self.calm.began_us[number] > SAID_AFTER_US:
                return True
        return self.disk_waits_ms() * 1000 > SAID_AFTER_US

    # -- the end

    def close(self, double seconds):
        """Do the queued appends, for at most so long; the loop gets no more notices. Appends that
        take longer continue in their thread.
        """
        cdef Lane lane
        cdef int64_t until = now_us() + <int64_t>(seconds * 1e6)
        self.calm.threaded = False
        self.stopping = True
        if self.calm.probe is not None:
            self.calm.probe.close()
        while self.run_later is not None and self.run_next():
            pass
        for lane in [*self.lanes, self.watch, self.space]:
            lane.wake()
        for name, thread in self.threads.items():
            thread.join(max(until - now_us(), 0) / 1e6)
            if thread.is_alive() and name in _NAMES:
                lane = self.lanes[_NAMES.index(name)]
                self.warn(f"closing {self.path}: {len(lane.jobs) + (lane.running is not None)} "
                          f"appends are not done after {seconds:.0f} s")
        self.call_threadsafe = None


def _name(AppendJob job not None):
    return str(job.core.owner.topic_partition)
