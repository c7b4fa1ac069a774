"""Epochs and contents of a share session's requests, compared with a model of the broker's side."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from kstore.clients.core.share.session import MAX_EPOCH, ShareSession
from kstore.protocol.shares.acknowledge import ShareAcknowledgeRequest
from kstore.protocol.shares.fetch import ShareFetchRequest

TOPICS = [uuid.UUID(int=1), uuid.UUID(int=2)]
PARTITIONS = st.tuples(st.sampled_from(TOPICS), st.integers(0, 3))
ACKNOWLEDGED = st.dictionaries(
    PARTITIONS,
    st.dictionaries(st.integers(0, 9), st.integers(0, 4), min_size=1, max_size=2),
    max_size=4,
)


class Broker:
    """What Kafka checks: the epoch of each request, and no acknowledgement in the first."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.partitions: set[tuple[uuid.UUID, int]] = set()

    def fetch(self, request: ShareFetchRequest) -> None:
        rows = [(t.topic_id, p) for t in request.topics for p in t.partitions]
        self._check(request.share_session_epoch, any(p.acknowledgement_batches for _, p in rows))
        if request.share_session_epoch == 0:
            self.partitions = set()
            assert request.forgotten_topics_data == []
        for topic in request.forgotten_topics_data:
            gone = {(topic.topic_id, index) for index in topic.partitions}
            assert gone <= self.partitions
            self.partitions -= gone
        self.partitions |= {(topic_id, p.partition_index) for topic_id, p in rows}

    def acknowledge(self, request: ShareAcknowledgeRequest) -> None:
        assert request.share_session_epoch != 0, "only a fetch begins a session"
        self._check(request.share_session_epoch, has_any=True)

    def _check(self, epoch: int, has_any: bool) -> None:
        if epoch == 0:
            assert not has_any
            self.epoch = 1
        elif epoch == -1:
            assert self.epoch is not None
            self.epoch, self.partitions = None, set()
        else:
            assert epoch == self.epoch
            self.epoch = 1 if epoch == MAX_EPOCH else epoch + 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["fetch", "acknowledge", "close", "lost answer", "lost request"]),
        st.frozensets(PARTITIONS),
        ACKNOWLEDGED,
    ),
    max_size=20,
)


@given(STEPS, st.sampled_from([0, MAX_EPOCH - 2]))
def test_the_brokers_session_is_what_was_wanted_last(steps: list, later: int) -> None:  # type: ignore[type-arg]
    session, broker = ShareSession(), Broker()
    for step, wanted, types in steps:
        if session.epoch == 1 and later:
            session.epoch = broker.epoch = later
        if step == "acknowledge" or step == "close":
            if session.is_new:
                continue
            request = ShareAcknowledgeRequest()
            session.fill_acknowledge(request, types, is_last=step == "close")
            broker.acknowledge(request)
            said = {(t.topic_id, p.partition_index) for t in request.topics for p in t.partitions}
            assert said == set(types)
            if step == "acknowledge":
                session.answered()
            else:
                assert session.is_new
            continue
        fetch = ShareFetchRequest()
        own = {} if session.is_new else {tp: row for tp, row in types.items() if tp in wanted}
        session.fill_fetch(fetch, wanted, own)
        if step != "lost request":
            broker.fetch(fetch)
        if step == "fetch":
            session.answered()
            assert broker.partitions == set(wanted)
        else:
            session.failed()
            assert session.is_new
