"""Planted bugs: for each rule of the checkers at least one change of kstore's code that breaks it.
A checker that does not notice its bug is worth nothing; test_mutations.py runs them all.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import kstore.broker.api.groups.offsets as group_offsets
import kstore.broker.api.logs.list_offsets as list_offsets
import kstore.broker.runtime.controller.growth as growth
import kstore.broker.runtime.controller.preparing as preparing
import kstore.broker.runtime.controller.store as controller_store
import kstore.broker.runtime.groups.group_partition as group_partition
import kstore.broker.runtime.metadata.image_updates as image_updates
import kstore.broker.runtime.replication.counts as counts
import kstore.broker.runtime.replication.replicas as replicas
import kstore.broker.runtime.transactions.markers as markers
import kstore.broker.state.groups.classic.step as classic_step
import kstore.broker.state.groups.consumer.reconcile as consumer_reconcile
import kstore.broker.state.groups.coordinator.coordinator_shard as group_shard
import kstore.broker.state.groups.offsets as offsets
import kstore.broker.state.groups.streams.reconcile as streams_reconcile
import kstore.log.log_dir as log_dir
import kstore.log.recovery.producer_state as producer_state
import kstore.log.recovery.recovery as recovery
from kstore.broker.runtime.controller.controller import Controller
from kstore.broker.runtime.log_dirs import fsync_batch
from kstore.broker.runtime.replication.fetchers import Fetchers
from kstore.broker.runtime.topics.cluster_topics import ClusterTopics
from kstore.broker.state.work import whole
from kstore.clients.core.consumer import epoch_history
from kstore.errors import ErrorCode
from tests.sim.bugs import commit_bugs, election_bugs, mirror_bugs, order_bugs, share_bugs
from tests.sim.machines.loop import current_life
from tests.sim.workloads import reading

Put = Callable[[Any, str, Any], None]
"""Replaces an attribute for the time of a simulation."""


class Mutation(NamedTuple):
    """A planted bug, the rule that it breaks, and the simulation in which that shows."""

    plant: Callable[[Put], None]
    rule: str
    arguments: str
    """Of `python -m tests.sim`."""
    explanation: str


def _commit_alone(put: Put) -> None:
    class Alone(image_updates.Partition):
        def lead(self, epoch: int, version: int, nodes: Any, isr: Any, now_ms: Any = None) -> None:
            life = current_life()
            me = (int(life.name.removeprefix("broker").partition(".")[0]),) if life else isr
            super().lead(epoch, version, me, me, now_ms)

        def configure(self, **given: Any) -> None:
            super().configure(**given | {"min_insync_replicas": 1})

    put(image_updates, "Partition", Alone)


def _unsynced_is_seen(put: Put) -> None:
    class Careless(log_dir.Log):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.core.shows_durable = False

    put(log_dir, "Log", Careless)


def _nothing_is_told(put: Put) -> None:
    put(logging.Logger, "error", lambda *told, **more: None)
    _commit_alone(put)  # the other replicas make good what one has lost, else


def _no_truncation(put: Put) -> None:
    cut_as_told = Fetchers._cut

    def keep(self: Any, fetcher: Any, followed: Any, cut: Any, why: str) -> None:
        kept = followed.partition.log
        if cut.restart or cut.offset >= kept.log_end_offset:
            cut_as_told(self, fetcher, followed, cut, why)
            return
        kept.core.epochs.assign_epoch(followed.partition.leader_epoch, cut.offset)
        fetcher.release(followed)

    put(Fetchers, "_cut", keep)


def _answer_before_sync(put: Put) -> None:
    def wait(self: Any, appended: Any, done: Any) -> None:
        self._loop.call_soon(done, True)

    put(fsync_batch.FsyncBatcher, "wait", wait)


def _forgotten_producers(put: Put) -> None:
    def forget(log: Any, offset: int) -> None:
        log.core.producers.clear()

    put(recovery, "restore_producers", forget)
    put(producer_state, "restore_producers", forget)


def _high_watermark_back(put: Put) -> None:
    class Back(image_updates.Partition):
        """Takes the high watermark back once its in-sync replicas change."""

        back = 0

        def isr_applied(self, *given: Any) -> bool:
            applied = super().isr_applied(*given)
            self.back += 5 if applied else 0
            return applied

        @property
        def high_watermark(self) -> int:
            return max(super().high_watermark - self.back, 0)

    put(image_updates, "Partition", Back)


def _wrong_marker(put: Put) -> None:
    write = markers.Markers.write

    def careless(self: Any, place: Any, *given: Any, committed: bool, **more: Any) -> int:
        if place.topic != "copies" or place.partition != 0:
            return write(self, place, *given, committed=committed, **more)
        return write(self, place, *given, committed=not committed, **more)

    put(markers.Markers, "write", careless)


def _offsets_of_aborted(put: Put) -> None:
    end = offsets.Offsets.replay_transaction_end

    def always(self: Any, producer_id: int, *, committed: bool) -> Any:
        return end(self, producer_id, committed=True)

    put(offsets.Offsets, "replay_transaction_end", always)


def _two_owners(put: Put) -> None:
    advance = consumer_reconcile._advance

    def greedy(member: Any, goal: Any, owned: Any) -> Any:
        return advance(member, goal._replace(taken=()), owned)

    put(consumer_reconcile, "_advance", greedy)
    # The checker of the simulation is to find it, not the broker's own.
    put(group_shard.GroupShard, "check", lambda self: None)


def _impatient_join(put: Put) -> None:
    complete = classic_step.Step.complete_join
    put(classic_step.Step, "wait_for_joins", lambda self: whole(complete(self)))
    put(group_shard.GroupShard, "check", lambda self: None)


def _two_tasks(put: Put) -> None:
    difference = streams_reconcile._difference

    ownerless = SimpleNamespace(active_owners={}, standby_owners={}, warmup_owners={})

    def greedy(group: Any, *given: Any) -> Any:
        return difference(ownerless, *given)  # type: ignore[arg-type]

    put(streams_reconcile, "_difference", greedy)
    put(group_shard.GroupShard, "check", lambda self: None)


def _silent_rollback(put: Put) -> None:
    def untold(self: Any, expansion: Any, why: str) -> None:
        """The marker is gone, and nobody hears of it."""
        self._undone[expansion.topic] = "planted"

    put(growth.ControllerGrowth, "undone", untold)
    put(counts.PreparedCounts, "_look_later", lambda self: None)


def _epochs_again(put: Put) -> None:
    numbered = controller_store._numbered

    def by_place(topic: Any, first: int, first_epoch: int, *given: Any) -> Any:
        return numbered(topic, first, first, *given)

    put(controller_store, "_numbered", by_place)


def _names_are_enough(put: Put) -> None:
    for module in (list_offsets, group_offsets):
        put(module, "partition_epoch_error", lambda asked, known: ErrorCode.NONE)


def _unnumbered_partitions(put: Put) -> None:
    class Unnumbered(image_updates.Partition):
        """Does not keep its partition epoch, so nothing that is asked of it is checked."""

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, -1 if name == "partition_epoch" else value)

    put(image_updates, "Partition", Unnumbered)
    put(replicas, "Partition", Unnumbered)


def _lost_commits(put: Put) -> None:
    replay = group_partition.GroupPartition._replay

    def forgetful(self: Any, record: Any) -> Any:
        key = record.key
        is_commit = (
            key is not None and not record.batch.is_control and key[:2] in (b"\0\0", b"\0\1")
        )
        lost = is_commit and record.offset % 3 == 0
        return None if lost else replay(self, record)

    put(group_partition.GroupPartition, "_replay", forgetful)


def replacing(owner: Any, name: str, other: Any) -> Callable[[Put], None]:
    """The bug that is in one attribute."""
    return lambda put: put(owner, name, other)


async def _look_away(*given: Any) -> None:
    return


def _planted(*given: Any) -> None:
    raise ZeroDivisionError("planted")


CLUSTER = "--brokers 3 --workloads produce,read --seconds 12"
CHURN = "--faults none --seconds 100 --workloads produce,churn"
SHRINKING = "--brokers 3 --faults none --workloads produce,contract"
SHARING = "--brokers 3 --seconds 10 --workloads produce,sharing --faults {}"
MUTATIONS: dict[str, Mutation] = {
    "answer-before-sync": Mutation(
        _answer_before_sync, "acknowledged", "--flush always --faults power --workloads produce",
        "acks=all is answered before the record is on the disk",
    ),
    "any-replica-leads": Mutation(
        election_bugs.any_replica_leads, "acknowledged", f"{CLUSTER} --faults behind,kill",
        "a replica that is not in sync may be elected",
    ),
    "unclean-is-eligible": Mutation(
        election_bugs.unclean_is_eligible, "acknowledged",
        "--brokers 3 --faults unsynced --flush os --workloads produce --seconds 30",
        "a broker that comes back from an unclean shutdown stays eligible",
    ),
    "commit-alone": Mutation(
        _commit_alone, "acknowledged", f"{CLUSTER} --faults behind,kill",
        "a leader's high watermark does not wait for its followers",
    ),
    "answer-before-sync-read": Mutation(
        _answer_before_sync, "offset_reused",
        "--flush always --faults power --workloads produce,read",
        "an offset that was lost with the power is given to another record",
    ),
    "high-watermark-back": Mutation(
        _high_watermark_back, "high_watermark", f"{CLUSTER} --faults kill,freeze",
        "a change of the ISR takes the high watermark back",
    ),
    "same-epoch": Mutation(
        election_bugs.same_epoch, "one_leader", f"{CLUSTER} --faults behind,kill",
        "an election does not raise the leader epoch",
    ),
    "same-epoch-diverges": Mutation(
        election_bugs.same_epoch, "prefixes", f"{CLUSTER} --faults behind,kill",
        "an election does not raise the leader epoch, so followers see no reason to truncate",
    ),
    # Its log would differ from the leader's, but an epoch that falls is refused at the append.
    "no-truncation": Mutation(
        _no_truncation, "liveness", f"{CLUSTER} --faults behind,kill",
        "a follower keeps what its leader does not have",
    ),
    "unsynced-is-seen": Mutation(
        _unsynced_is_seen, "offset_reused",
        "--flush always --faults power,slow-disk --workloads produce,read",
        "readers see records that are not on the disk",
    ),
    "unchecked": Mutation(
        replacing(reading, "decode", functools.partial(reading.decode, verify=False)),
        "wrong_record", "--brokers 3 --faults rot,restart --seconds 40 --workloads produce,read",
        "consumers do not look at checksums",
    ),
    "nothing-is-told": Mutation(
        _nothing_is_told, "silent_loss",
        "--brokers 3 --faults files,restart --workloads produce,read",
        "brokers do not tell what is lost, and have it alone",
    ),
    "forgotten-producers": Mutation(
        _forgotten_producers, "duplicate",
        "--faults kill,delay,slow-disk --flush always --workloads produce",
        "a restart forgets what producers wrote last",
    ),
    "forgotten-givers": Mutation(
        _forgotten_producers, "given_offsets",
        "--faults kill,delay,slow-disk --flush always --workloads give",
        "a batch with a given offset that is sent again is refused, though it is there (KIP-391)",
    ),
    "wrong-marker": Mutation(
        _wrong_marker, "atomic", "--faults reset --seconds 5 --workloads produce,copy",
        "a transaction's end is another on one partition",
    ),
    "offsets-of-aborted": Mutation(
        _offsets_of_aborted, "exactly_once", "--faults reset --seconds 5 --workloads produce,copy",
        "an aborted transaction's offsets are taken over",
    ),
    "two-owners": Mutation(
        _two_owners, "one_owner", "--faults reset --workloads produce,group",
        "a partition is given away before its owner has let it go",
    ),
    "impatient-join": Mutation(
        _impatient_join, "one_owner", "--faults reset --workloads produce,classic",
        "a rebalance of the classic protocol does not wait for members to give up what they own",
    ),
    "two-tasks": Mutation(
        _two_tasks, "one_owner", "--faults reset --workloads produce,streams",
        "a task is given away before its owner has let it go",
    ),
    "only-the-present-epoch": Mutation(
        commit_bugs.only_the_present_epoch, "owners_commit", CHURN,
        "an owner's commit is refused while its member moves to another epoch (KAFKA-19779)",
    ),
    "only-the-present-epoch-of-tasks": Mutation(
        commit_bugs.only_the_present_epoch_of_tasks, "owners_commit", CHURN,
        "the same in the streams protocol",
    ),
    "only-while-stable": Mutation(
        commit_bugs.only_while_stable, "owners_commit", CHURN,
        "a classic group refuses the commits that members make before they join again",
    ),
    "open-gates": Mutation(
        order_bugs.open_gates, "key_order",
        "--brokers 3 --faults partition,isolate --workloads produce,expand",
        "a group may read new partitions before what was written to the others until then",
    ),
    "open-remainder": Mutation(
        order_bugs.open_gates, "key_order", SHRINKING,
        "a group that comes later may read all partitions of a topic that shrinks at once",
    ),
    "hasty-contraction": Mutation(
        order_bugs.nobody_waits, "key_order", SHRINKING,
        "keys move to other partitions before groups have read those that retire",
    ),
    "hasty-deletion": Mutation(
        order_bugs.nothing_is_left, "acknowledged", SHRINKING,
        "retired partitions are deleted with their records",
    ),
    "offsets-of-another-life": Mutation(
        order_bugs.offsets_stay, "other_life", SHRINKING,
        "a group begins in a new partition where it was in one of that number that is gone",
    ),
    "patient-controller": Mutation(
        replacing(preparing.Preparing, "_deadline", lambda self, expansion: float("inf")),
        "refusals", "--brokers 3 --faults deaf --seconds 30 --workloads produce,expand",
        "an expansion waits for leaders as long as it takes",
    ),
    "silent-rollback": Mutation(
        _silent_rollback, "refusals",
        "--brokers 3 --faults deaf --seconds 30 --workloads produce,expand",
        "leaders are not told of an expansion that is rolled back, and do not look for themselves",
    ),
    "epochs-again": Mutation(
        _epochs_again, "recreated", "--brokers 3 --faults none --workloads produce,recreate",
        "the partitions of a recreated topic have the partition epochs of those before them",
    ),
    "names-are-enough": Mutation(
        _names_are_enough, "other_life", "--brokers 3 --faults none --workloads produce,recreate",
        "of a request by name nobody asks which topic of that name is meant",
    ),
    "unnumbered-partitions": Mutation(
        _unnumbered_partitions, "recreated",
        "--brokers 3 --faults none --workloads produce,recreate",
        "partitions do not know their epochs: what is meant for a deleted one is appended",
    ),
    "lost-commits": Mutation(
        _lost_commits, "commits", "--faults kill --workloads produce,group",
        "some commits are passed over when a coordinator loads",
    ),
    "unknown-history": Mutation(
        replacing(epoch_history.EpochHistory, "note", lambda *given: None), "lost_records",
        "--brokers 3 --faults behind,kill --seconds 30 --workloads lose",
        "a consumer does not keep the leader epochs of the records that it has processed",
    ),
    "holes-in-copies": Mutation(
        mirror_bugs.holes_in_copies, "exact_copy", "--faults none --seconds 5 --workloads mirror",
        "a replicator leaves batches out, which the gaps that a log may have hide",
    ),
    "same-ids": Mutation(
        mirror_bugs.same_ids, "acknowledged", "--faults none --seconds 5 --workloads mirror",
        "a copy's cluster gives producers ids of the source's: their records are taken for doubles",
    ),
    "lost-updates": Mutation(
        share_bugs.lost_updates, "share_state", "--faults kill --workloads produce,share",
        "some updates of share-partitions are passed over when a coordinator loads",
    ),
    "unfenced-leaders": Mutation(
        share_bugs.unfenced_leaders, "share_state", "--faults none --workloads produce,share",
        "a share-partition's leader writes though another one has taken over",
    ),
    "short-locks": Mutation(
        share_bugs.short_locks, "one_holder", SHARING.format("none"),
        "acquisition locks end before their time",
    ),
    "anybody-acknowledges": Mutation(
        share_bugs.anybody_acknowledges, "one_holder", SHARING.format("none"),
        "a member acknowledges what another one has acquired meanwhile",
    ),
    "hasty-acceptance": Mutation(
        share_bugs.hasty_acceptance, "accepted_once", SHARING.format("behind,kill"),
        "an acknowledgement is answered before it is kept",
    ),
    "forgotten-acceptance": Mutation(
        share_bugs.forgotten_acceptance, "accepted_once", SHARING.format("kill"),
        "a new leader of a share-partition knows only where it begins",
    ),
    "uncounted-deliveries": Mutation(
        share_bugs.uncounted_deliveries, "delivery_count", SHARING.format("none"),
        "what is released comes again without an end",
    ),
    "lost-locks": Mutation(
        share_bugs.lost_locks, "share_lost", SHARING.format("none"),
        "a record whose lock has ended is not delivered again",
    ),
    "no-deletion": Mutation(
        replacing(ClusterTopics, "delete", _look_away), "topics",
        "--brokers 3 --workloads topics --faults none",
        "a deletion is answered and does not happen",
    ),
    "no-failover": Mutation(
        replacing(Controller, "_take_brokers", _look_away), "liveness", f"{CLUSTER} --faults kill",
        "the controller does not see brokers come and go",
    ),
    "defect": Mutation(
        replacing(Fetchers, "follow", _planted), "crash", f"{CLUSTER} --faults none",
        "a defect raises what nobody expects",
    ),
}  # fmt: skip
"""Every planted bug by its name."""
