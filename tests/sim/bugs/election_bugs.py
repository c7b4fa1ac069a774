"""The planted bugs of elections and leadership."""

from __future__ import annotations

from typing import Any

import kstore.broker.runtime.metadata.image_updates as image_updates
from kstore.broker.coordination import registration
from kstore.broker.runtime.controller.controller import Controller
from kstore.broker.runtime.replication.fetchers import Fetchers
from kstore.broker.state.controller import election, events
from tests.sim.bugs.planting import CLUSTER, bug
from tests.sim.machines.loop import current_life

BEHIND = f"{CLUSTER} --faults behind,kill"


@bug("any-replica-leads", "acknowledged", BEHIND,
     "a replica that is not in sync may be elected", (election, "after_change"))  # fmt: skip
def any_replica_leads(
    clean: Any, partition: Any, alive: Any, leaving: Any = (), **given: Any
) -> Any:
    if partition.leader in alive and partition.leader not in leaving:
        return clean(partition, alive, leaving, **given)
    others = tuple(each for each in partition.replicas[::-1] if each != partition.leader)
    everyone = (*others, partition.leader)
    careless = partition._replace(isr=everyone, replicas=everyone)
    found = clean(careless, alive, leaving, **given)
    return None if found is None else found._replace(replicas=partition.replicas)


@bug(
    "same-epoch-diverges",
    "prefixes",
    BEHIND,
    "an election does not raise the leader epoch, so followers see no reason to truncate",
    (events, "_change"),
)
@bug("same-epoch", "one_leader", BEHIND,
     "an election does not raise the leader epoch", (events, "_change"))  # fmt: skip
def same_epoch(
    change: Any, state: Any, topic: str, index: int, before: Any, new: Any, *rules: Any
) -> Any:
    made = change(state, topic, index, before, new, *rules)
    return made._replace(image=made.image._replace(leader_epoch=before.leader_epoch))


bug("unclean-is-eligible", "acknowledged",
    "--brokers 3 --faults unsynced --flush os --workloads produce --seconds 30",
    "a broker that comes back from an unclean shutdown stays eligible",
    (registration, "unclean_shutdowns"))(lambda was, store, registered: {})  # fmt: skip


@bug("commit-alone", "acknowledged", BEHIND,
     "a leader's high watermark does not wait for its followers",
     (image_updates, "Partition"))  # fmt: skip
class Alone(image_updates.Partition):
    def lead(self, epoch: int, version: int, nodes: Any, isr: Any, now_ms: Any = None) -> None:
        life = current_life()
        me = (int(life.name.removeprefix("broker").partition(".")[0]),) if life else isr
        super().lead(epoch, version, me, me, now_ms)

    def configure(self, **given: Any) -> None:
        super().configure(**given | {"min_insync_replicas": 1})


@bug("high-watermark-back", "high_watermark", f"{CLUSTER} --faults kill,freeze",
     "a change of the ISR takes the high watermark back",
     (image_updates, "Partition"))  # fmt: skip
class Back(image_updates.Partition):
    back = 0

    def isr_applied(self, *given: Any) -> bool:
        applied = super().isr_applied(*given)
        self.back += 5 if applied else 0
        return applied

    @property
    def high_watermark(self) -> int:
        return max(super().high_watermark - self.back, 0)


# Its log would differ from the leader's, but an append with a lower epoch is refused.
@bug("no-truncation", "liveness", BEHIND,
     "a follower keeps what its leader does not have", (Fetchers, "_cut"))  # fmt: skip
def no_truncation(was: Any, self: Any, fetcher: Any, followed: Any, cut: Any, why: str) -> None:
    kept = followed.partition.log
    if cut.restart or cut.offset >= kept.log_end_offset:
        was(self, fetcher, followed, cut, why)
        return
    kept.core.epochs.assign_epoch(followed.partition.leader_epoch, cut.offset)
    fetcher.release(followed)


@bug("no-failover", "liveness", f"{CLUSTER} --faults kill",
     "the controller does not see brokers come and go",
     (Controller, "_take_brokers"))  # fmt: skip
async def no_failover(was: Any, *given: Any) -> None:
    return
