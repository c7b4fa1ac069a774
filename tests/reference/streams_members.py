"""Members of a streams group as a test sees them: they have tasks, give them up on request, and
report them. They are simple on purpose, and do not know the coordinator's rules.
"""

from __future__ import annotations

from typing import Any

from kstore.protocol.groups import streams_groups
from tests.plain_messages import Ask
from tests.reference.group_driver import GroupDriver

Task = tuple[str, int]
Topology = streams_groups.StreamsGroupHeartbeatRequestTopology
Subtopology = streams_groups.StreamsGroupHeartbeatRequestSubtopology
TopicInfo = streams_groups.StreamsGroupHeartbeatRequestTopicInfo
Config = streams_groups.StreamsGroupHeartbeatRequestKeyValue


def topic_info(
    name: str, partitions: int = 0, replication_factor: int = 0, **configs: str
) -> TopicInfo:
    """A repartition or changelog topic; ``retention_ms="1"`` is a config of it."""
    rows = [Config(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    sizes = {"partitions": partitions, "replication_factor": replication_factor}
    return TopicInfo(name=name, topic_configs=rows, **sizes)


def subtopology(subtopology_id: str, *sources: str, **fields: Any) -> Subtopology:
    """A subtopology that reads these topics."""
    return Subtopology(subtopology_id=subtopology_id, source_topics=list(sources), **fields)


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    """A topology of these."""
    return Topology(epoch=epoch, subtopologies=list(subtopologies))


def tasks_of(entries: list[Any] | None) -> set[Task]:
    """The tasks that a message's list names."""
    return {(entry.subtopology_id, p) for entry in entries or () for p in entry.partitions}


def entries_of(tasks: set[Task]) -> list[dict[str, Any]]:
    """A request's list of tasks."""
    grouped: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(tasks):
        grouped.setdefault(subtopology_id, []).append(partition)
    return [{"subtopology_id": name, "partitions": grouped[name]} for name in grouped]


class StreamsClient:
    """One member. ``epoch`` is what it knows; ``active`` and ``standby`` are what it holds."""

    def __init__(
        self, driver: GroupDriver, member_id: str, told: Topology, process_id: str = ""
    ) -> None:
        self.driver = driver
        self.member_id = member_id
        self.process_id = process_id or f"process of {member_id}"
        self.told = told
        self.epoch = 0
        self.active: set[Task] = set()
        self.standby: set[Task] = set()

    def join(self, **fields: Any) -> Any:
        """Join, or join again without any task; the answer."""
        self.epoch, self.active, self.standby = 0, set(), set()
        return self.beat(**fields)

    def beat(self, *, tell: bool = True, lost: bool = False, **fields: Any) -> Any:
        """One heartbeat; ``lost``: its answer does not arrive."""
        joins = self.epoch == 0
        said = {
            "group_id": "g",
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "endpoint_information_epoch": 0,
            "rebalance_timeout_ms": 60_000 if joins else -1,
            "topology": self.told if joins else None,
            "process_id": self.process_id,
        }
        if tell or joins:
            said["active_tasks"] = entries_of(self.active)
            said["standby_tasks"] = entries_of(self.standby)
            said["warmup_tasks"] = []
        answer = self.driver.send(Ask.StreamsGroupHeartbeat(**(said | fields)))
        if not lost and answer.error_code == 0:
            self.epoch = max(answer.member_epoch, 0)
            if answer.active_tasks is not None:
                self.active = tasks_of(answer.active_tasks)
                self.standby = tasks_of(answer.standby_tasks)
        return answer

    def leave(self) -> Any:
        who = {"group_id": "g", "member_id": self.member_id, "member_epoch": -1}
        answer = self.driver.send(Ask.StreamsGroupHeartbeat(**who))
        self.epoch, self.active, self.standby = 0, set(), set()
        return answer


def hard_state(group: Any) -> dict[str, Any]:
    """All of a streams group that has to survive its coordinator, as comparable values."""
    names = [name for name in group.__slots__ if name not in ("soft", "topology")]
    state = {name: getattr(group, name) for name in names}
    state["topology"] = None if group.topology is None else group.topology.value
    state["state"] = group.state
    return state
