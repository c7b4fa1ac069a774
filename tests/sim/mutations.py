"""Planted bugs: for each rule of the checkers, at least one change of kstore's code that breaks it.
Each checker must find its bug; test_mutations.py runs them all. The bugs of elections, groups,
shares and copies are in bugs/.
"""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import kstore.broker.api.groups.offsets as group_offsets
import kstore.broker.api.logs.list_offsets as list_offsets
import kstore.broker.runtime.controller.store as controller_store
import kstore.broker.runtime.metadata.image_updates as image_updates
import kstore.broker.runtime.replication.replicas as replicas
import kstore.broker.state.groups.consumer.reconcile as consumer_reconcile
import kstore.broker.state.groups.streams.reconcile as streams_reconcile
import kstore.log.log_dir as log_dir
import kstore.log.recovery.producer_state as producer_state
import kstore.log.recovery.recovery as recovery
from kstore.broker.runtime.log_dirs.fsync_batch import FsyncBatcher
from kstore.broker.runtime.replication.fetchers import Fetchers
from kstore.broker.runtime.topics.cluster_topics import ClusterTopics
from kstore.broker.runtime.transactions.markers import Markers
from kstore.broker.state.groups.classic.step import Step
from kstore.broker.state.groups.coordinator.coordinator_shard import GroupShard
from kstore.broker.state.work import whole
from kstore.clients.core.consumer.epoch_history import EpochHistory
from kstore.errors import ErrorCode
from tests.sim.bugs import commit_bugs, election_bugs, mirror_bugs, order_bugs, share_bugs
from tests.sim.bugs.planting import CLUSTER, MUTATIONS, Put, bug
from tests.sim.workloads import reading

__all__ = [
    "MUTATIONS", "commit_bugs", "election_bugs", "mirror_bugs", "order_bugs", "share_bugs"
]  # fmt: skip

RECREATING = "--brokers 3 --faults none --workloads produce,recreate"
RESTARTS = "--faults kill,delay,slow-disk --flush always --workloads {}"


@bug(
    "answer-before-sync-read",
    "offset_reused",
    "--flush always --faults power --workloads produce,read",
    "an offset that was lost with the power is given to another record",
    (FsyncBatcher, "wait"),
)
@bug("answer-before-sync", "acknowledged", "--flush always --faults power --workloads produce",
     "acks=all is answered before the record is on the disk",
     (FsyncBatcher, "wait"))  # fmt: skip
def answer_before_sync(was: Any, self: Any, appended: Any, done: Any) -> None:
    self._loop.call_soon(done, True)


@bug("unsynced-is-seen", "offset_reused",
     "--flush always --faults power,slow-disk --workloads produce,read",
     "readers see records that are not on the disk", (log_dir, "Log"))  # fmt: skip
class Careless(log_dir.Log):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.core.shows_durable = False


bug(
    "unchecked",
    "wrong_record",
    "--brokers 3 --faults rot,restart --seconds 40 --workloads produce,read",
    "consumers do not look at checksums",
    (reading, "decode"),
)(lambda was, *given, **more: was(*given, verify=False, **more))


@bug("nothing-is-told", "silent_loss",
     "--brokers 3 --faults files,restart --workloads produce,read",
     "brokers do not tell what is lost, and have it alone")  # fmt: skip
def nothing_is_told(put: Put) -> None:
    put(logging.Logger, "error", lambda *told, **more: None)
    MUTATIONS["commit-alone"].plant(put)  # otherwise the other replicas repair what one has lost


@bug(
    "forgotten-producers",
    "duplicate",
    RESTARTS.format("produce"),
    "a restart forgets what producers wrote last",
    (recovery, "restore_producers"),
    (producer_state, "restore_producers"),
)
@bug("forgotten-givers", "given_offsets", RESTARTS.format("give"),
     "a batch with a given offset that is sent again is refused, though it is there (KIP-391)",
     (recovery, "restore_producers"), (producer_state, "restore_producers"))  # fmt: skip
def forgotten_producers(was: Any, log: Any, offset: int) -> None:
    log.core.producers.clear()


@bug("wrong-marker", "atomic", "--faults reset --seconds 5 --workloads produce,copy",
     "a transaction's end is another on one partition", (Markers, "write"))  # fmt: skip
def wrong_marker(was: Any, self: Any, place: Any, *given: Any, committed: bool, **more: Any) -> int:
    is_wrong = place.topic == "copies" and place.partition == 0
    return was(self, place, *given, committed=committed != is_wrong, **more)


def _without_own_check(put: Put) -> None:
    """The checker of the simulation must find it, not the broker's own check."""
    put(GroupShard, "check", lambda self: None)


@bug("two-owners", "one_owner", "--faults reset --workloads produce,group",
     "a partition is given away before its owner has let it go",
     (consumer_reconcile, "_advance"), also=[_without_own_check])  # fmt: skip
def two_owners(was: Any, member: Any, goal: Any, owned: Any) -> Any:
    return was(member, goal._replace(taken=()), owned)


@bug("impatient-join", "one_owner", "--faults reset --workloads produce,classic",
     "a rebalance of the classic protocol does not wait for members to give up what they own",
     (Step, "wait_for_joins"), also=[_without_own_check])  # fmt: skip
def impatient_join(was: Any, self: Any) -> Any:
    return whole(self.complete_join())


@bug("two-tasks", "one_owner", "--faults reset --workloads produce,streams",
     "a task is given away before its owner has let it go",
     (streams_reconcile, "_difference"), also=[_without_own_check])  # fmt: skip
def two_tasks(was: Any, group: Any, *given: Any) -> Any:
    return was(SimpleNamespace(active_owners={}, standby_owners={}, warmup_owners={}), *given)


@bug("epochs-again", "recreated", RECREATING,
     "the partitions of a recreated topic have the partition epochs of those before them",
     (controller_store, "_numbered"))  # fmt: skip
def epochs_again(was: Any, topic: Any, first: int, first_epoch: int, *given: Any) -> Any:
    return was(topic, first, first, *given)


bug(
    "names-are-enough",
    "other_life",
    RECREATING,
    "of a request by name nobody asks which topic of that name is meant",
    (list_offsets, "partition_epoch_error"),
    (group_offsets, "partition_epoch_error"),
)(lambda *given: ErrorCode.NONE)


@bug("unnumbered-partitions", "recreated", RECREATING,
     "partitions do not know their epochs: what is meant for a deleted one is appended",
     (image_updates, "Partition"), (replicas, "Partition"))  # fmt: skip
class Unnumbered(image_updates.Partition):
    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, -1 if name == "partition_epoch" else value)


bug(
    "unknown-history",
    "lost_records",
    "--brokers 3 --faults behind,kill --seconds 30 --workloads lose",
    "a consumer does not keep the leader epochs of the records that it has processed",
    (EpochHistory, "note"),
)(lambda *given: None)


@bug("no-deletion", "topics", "--brokers 3 --workloads topics --faults none",
     "a deletion is answered and does not happen", (ClusterTopics, "delete"))  # fmt: skip
async def no_deletion(was: Any, *given: Any) -> None:
    return


@bug("defect", "crash", f"{CLUSTER} --faults none",
     "a defect raises what nobody expects", (Fetchers, "follow"))  # fmt: skip
def defect(was: Any, *given: Any) -> None:
    raise ZeroDivisionError("planted")
