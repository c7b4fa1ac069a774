# Appends to the logs of one log dir that threads do, because they may have to wait.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore._fast.disk.threads cimport pthread_cond_t, pthread_mutex_t
from kstore._fast.log.append_plan cimport AppendResult
from kstore._fast.log.dir_calm cimport DirCalm
from kstore._fast.log.log_core cimport LogCore
from kstore._fast.record.unpack cimport Verdict

cdef enum AppendLane:
    LANE_SMALL = 0
    LANE_BULK = 1

# One append. Its creator subclasses it, and is notified on the loop.
cdef class AppendJob:
    cdef LogCore core
    cdef uint8_t* data                      # changed in place
    cdef Py_ssize_t size
    cdef object keeps                       # the owner of the memory
    cdef int32_t leader_epoch
    cdef int origin
    cdef Verdict seen
    cdef bint summed                        # the batches' checksums were checked
    cdef int64_t term                       # the log's term when it was queued
    cdef int64_t number                     # its number among the log's queued appends
    cdef AppendResult result                # valid unless there is a problem
    cdef readonly object problem            # the exception that the append raised, or None
    # Called on the loop, in the log's order: ended() when the append is done, go_on() after ended()
    # of all appends that were done by then.
    cdef int ended(self) except -1
    cdef int go_on(self) except -1
    cdef int take(self, object data) except -1

# An append that calls back with this job.
cdef class CallbackJob(AppendJob):
    cdef object callback

# The jobs of one thread.
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
    cdef object warn                        # callable(str): reports to the operator
    cdef object call_threadsafe             # of the loop that queues jobs; None: there is none
    # callable(run): calls it once for each job, instead of a thread; for simulations
    cdef object run_later
    cdef dict threads                       # name -> Thread
    cdef list lanes
    cdef Lane watch
    cdef Lane space                         # its jobs are files
    cdef int64_t watched_us                 # when the watch last had work
    cdef bint stopping
    cdef list done                          # done, but the loop has not been notified yet
    cdef bint told                          # a notification is on its way
    cdef readonly int64_t appends           # the number of appends that threads did
    cdef int submit(self, AppendJob job) except -1
    cdef int enter_lane(self, AppendJob job) except -1
    cdef int run(self, Lane lane, int number, AppendJob job) except -1
    cdef int tell_loop(self) except -1
    cdef bint hangs(self) noexcept nogil
    cdef int64_t disk_waits_ms(self) noexcept nogil
    cdef bint say_disk(self, bint owed) except -1
    cdef int say_appends(self, int64_t* said) except -1
