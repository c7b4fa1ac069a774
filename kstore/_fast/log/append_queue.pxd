# Appends to the logs of one log dir that are left to threads, since they may have to wait.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.disk.threads cimport pthread_cond_t, pthread_mutex_t
from kstore._fast.log.append_plan cimport AppendResult
from kstore._fast.log.dir_calm cimport DirCalm
from kstore._fast.log.log_core cimport LogCore
from kstore._fast.record.unpack cimport Verdict

cdef enum AppendLane:
    LANE_SMALL = 0
    LANE_BULK = 1

# One append. Who asks for it makes a class of its own, which is told on the loop.
cdef class AppendJob:
    cdef LogCore core
    cdef uint8_t* data                      # changed in place
    cdef Py_ssize_t size
    cdef object keeps                       # what the memory belongs to
    cdef int32_t leader_epoch
    cdef int origin
    cdef Verdict seen
    cdef bint summed                        # the batches' checksums were checked
    cdef int64_t term                       # of the log, when it was queued
    cdef int64_t number                     # among all that were queued for the log
    cdef AppendResult result                # unless there is a problem
    cdef readonly object problem            # what the append raised; None: nothing
    # On the loop, in the order of the log: the append is done. Then, when that was said to all that
    # were done by now, what waited for it goes on.
    cdef int ended(self) except -1
    cdef int go_on(self) except -1
    cdef int take(self, object data) except -1

# One that calls back: with this job.
cdef class CallbackJob(AppendJob):
    cdef object callback

# What one thread waits for, and does.
cdef class Lane:
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t changed
    cdef bint woken
    cdef object jobs                        # AppendJob, in order
    cdef AppendJob running
    cdef void wake(self) noexcept nogil
    cdef void wait(self, int64_t timeout_ms) noexcept nogil

cdef class AppendQueue:
    cdef readonly str path
    cdef readonly DirCalm calm
    cdef object warn                        # callable(str): what the operator has to know
    cdef object call_threadsafe             # of the loop that jobs come from; None: there is none
    # callable(run): has it called once for each job, instead of a thread; for simulations
    cdef object run_later
    cdef dict threads                       # name -> Thread
    cdef list lanes
    cdef Lane watch
    cdef Lane space                         # its jobs are files
    cdef int64_t watched_us                 # when the watch last had work
    cdef bint stopping
    cdef list done                          # jobs that the loop does not know of
    cdef bint told                          # and is about to
    cdef readonly int64_t appends           # that were left to threads
    cdef int submit(self, AppendJob job) except -1
    cdef int enter_lane(self, AppendJob job) except -1
    cdef int run(self, Lane lane, int number, AppendJob job) except -1
    cdef int tell_loop(self) except -1
    cdef bint hangs(self) noexcept nogil
    cdef int64_t disk_waits_ms(self) noexcept nogil
    cdef bint say_disk(self, bint owed) except -1
    cdef int say_appends(self, int64_t* said) except -1
