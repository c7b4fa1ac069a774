"""broker/coordination/registration.py: what a registration says of the life before it, and
partition_nodes.py: what a partition's node says to versions that know no eligible leader replicas.
"""

from __future__ import annotations

import json

import pytest

from kstore.broker.coordination import registration, znodes
from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.coordination.partition_nodes import PartitionNode, read_state, state_node
from kstore.broker.coordination.store import Store, StoreError
from kstore.broker.coordination.znodes import CONTRACTIONS_FEATURE, ELR_FEATURE
from kstore.broker.state.metadata.image import BrokerImage, Endpoint, PartitionImage

BROKER = BrokerImage(3, (Endpoint("PLAINTEXT", "localhost", 9092),))
OWN = PartitionNode(7)


@pytest.fixture
def store() -> Store:
    made = MemoryStore()
    znodes.prepare(made)
    return made


def register(store: Store, ended_epoch: int = -1) -> int:
    """Another life, which ends with its session; its epoch."""
    session = store.new_session()
    epoch = registration.register(session, BROKER, 0, ended_epoch=ended_epoch)
    assert epoch is not None
    session.close()
    return epoch


def require(store: Store, *features: str) -> None:
    store.multi(registration.require_ops(store, registration.read_epoch(store), features))


def came_back_uncleanly(store: Store) -> bool:
    found = registration.unclean_shutdowns(store, {})
    for node_id in found:
        store.delete(f"{registration.UNCLEAN_SHUTDOWNS}/{node_id}")
    return set(found) == {BROKER.node_id}


def test_a_life_that_follows_the_clean_end_of_the_last_one_is_clean(store: Store) -> None:
    epoch = register(store)
    assert came_back_uncleanly(store)  # nothing is known of what was before
    epoch = register(store, epoch)
    assert not came_back_uncleanly(store)
    register(store, epoch)
    assert not came_back_uncleanly(store)


def test_the_clean_end_of_an_earlier_life_says_nothing(store: Store) -> None:
    first = register(store)
    register(store, first)
    came_back_uncleanly(store)
    register(store, first)  # the second life left no word
    assert came_back_uncleanly(store)


def test_an_unclean_end_is_known_until_the_controller_has_taken_it(store: Store) -> None:
    epoch = register(store)
    register(store, epoch)
    assert came_back_uncleanly(store)


def test_what_a_later_life_says_waits_until_that_is_known(store: Store) -> None:
    session = store.new_session()
    registration.register(session, BROKER, 0)
    seen = registration.read_brokers(store)
    session.close()
    register(store)
    assert registration.unclean_shutdowns(store, seen) == {}
    assert came_back_uncleanly(store)


def test_a_registration_says_what_its_version_knows(store: Store) -> None:
    session = store.new_session()
    registration.register(session, BROKER, 0)
    found = registration.read_broker(store, 3)
    assert found is not None
    assert found.keeps_elr
    assert found.knows_contractions
    data, _ = store.get("/brokers/ids/3")
    node = json.loads(data)
    del node["features"]  # a version before
    store.set("/brokers/ids/3", json.dumps(node).encode())
    found = registration.read_broker(store, 3)
    assert found is not None
    assert not found.keeps_elr
    assert not found.knows_contractions


def test_the_next_controller_epoch_needs_what_the_last_one_needs(store: Store) -> None:
    assert registration.read_epoch(store) == (0, -1, frozenset())
    assert registration.claim_controller(store, 3, 0)
    assert registration.read_epoch(store) == (1, 1, frozenset())
    cluster = znodes.cluster_id(store)
    require(store, ELR_FEATURE, CONTRACTIONS_FEATURE)
    assert znodes.cluster_id(store) == cluster
    registration.resign(store)
    assert registration.claim_controller(store, 3, 0)
    needs = {ELR_FEATURE, CONTRACTIONS_FEATURE}
    assert registration.read_epoch(store) == (2, 3, needs)
    assert registration.read_view(store).controller_epoch == 2
    assert register(store) > 0


def test_a_broker_that_does_not_know_what_the_cluster_needs_says_so(store: Store) -> None:
    registration.claim_controller(store, 3, 0)
    require(store, "kstore.newer")
    with pytest.raises(StoreError, match=r"needs kstore\.newer, .* upgrade this broker"):
        registration.register(store, BROKER, 0)
    assert not store.exists("/brokers/ids/3")
    require(store)
    assert register(store) > 0


def test_what_the_cluster_needs_is_in_what_version_0_1_0_reads(store: Store) -> None:
    registration.claim_controller(store, 3, 0)
    cluster = znodes.cluster_id(store)
    require(store, CONTRACTIONS_FEATURE)
    words = "needs kstore.contractions: upgrade this broker"
    assert store.get("/controller_epoch")[0].decode() == f"1 {words}"
    assert json.loads(store.get("/cluster/id")[0])["id"] == f"{cluster} ({words})"
    require(store)
    assert store.get("/controller_epoch")[0] == b"1"
    assert json.loads(store.get("/cluster/id")[0]) == {"version": "1", "id": cluster}


def test_a_partition_without_eligible_replicas_has_the_node_that_it_always_had() -> None:
    image = PartitionImage(1, 5, (), (1, 2), 7, 4)
    data = state_node(image, 9)
    assert data == (b'{"controller_epoch":9,"leader":1,"version":1,"leader_epoch":5,"isr":[1,2]}')
    assert read_state(data, 4, OWN) == image


@pytest.mark.parametrize(
    "image",
    [
        PartitionImage(1, 5, (), (1,), 7, 4, elr=(2,), elr_min_isr=2, elr_writes=3),
        PartitionImage(-1, 5, (), (), 7, 4, elr=(1, 2), last_known_elr=(1,), elr_min_isr=2),
        PartitionImage(-1, 5, (), (), 7, 4, last_known_elr=(1,)),
        PartitionImage(1, 5, (), (1,), 7, 4, recovering=True),
    ],
)
def test_a_partition_is_read_as_it_was_written(image: PartitionImage) -> None:
    assert read_state(state_node(image, 9), 4, OWN) == image


def test_an_older_version_finds_those_in_the_isr_that_may_lead() -> None:
    leaderless = PartitionImage(-1, 5, (), (), 7, elr=(1, 2), last_known_elr=(1,), elr_min_isr=2)
    assert json.loads(state_node(leaderless, 9))["isr"] == [1, 2]
    alone = PartitionImage(1, 5, (), (1,), 7, elr=(2,), elr_min_isr=2)
    assert json.loads(state_node(alone, 9))["isr"] == [1]
