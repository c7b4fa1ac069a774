"""The rules of a transactional id one by one: what a claim may do, the response to a repetition,
and the next epoch. The table of EndTxn is KIP-890's.
"""

from __future__ import annotations

import pytest

from kstore.broker.state.transactions.coordinator_shard import TransactionFilter
from kstore.broker.state.transactions.state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    LAST_EPOCH,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TV_0,
    TV_2,
    Transaction,
    from_value,
    in_order,
    record_of,
    topics_of,
)
from kstore.broker.state.transactions.steps import (
    Claim,
    add_partitions,
    complete,
    end_transaction,
    fence,
    init_producer_id,
)
from kstore.errors import ErrorCode
from kstore.protocol.transactions.admin import ListTransactionsRequest
from kstore.types import TopicPartition

NAME, ID, EPOCH, NOW = "tx", 7, 5, 1_000_000
PLACES = frozenset({TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 3)})
OK, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
BUSY, WRONG = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE


def given(state: int = EMPTY, **fields: object) -> Transaction:
    ongoing = state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
    base = Transaction(
        NAME,
        ID,
        EPOCH,
        timeout_ms=60_000,
        state=state,
        partitions=PLACES if ongoing else frozenset(),
        started_ms=NOW - 10 if state != EMPTY else -1,
        updated_ms=NOW - 10,
    )
    return base._replace(**fields)  # type: ignore[arg-type]


def init(current: Transaction | None, claim: Claim | None = None, least: int = 0):
    return init_producer_id(current, NAME, 500, claim, NOW, 99, least)


def end(current: Transaction, epoch: int, *, committed: bool, version: int = TV_2):
    claim = Claim(ID, epoch)
    return end_transaction(current, claim, version, NOW, 99, committed=committed)


def test_a_new_transactional_id_gets_an_id_at_epoch_0() -> None:
    decision = init(None)
    assert decision.producer == Claim(99, 0)
    assert decision.transaction == Transaction(
        NAME, 99, 0, previous_producer_id=99, timeout_ms=500, updated_ms=NOW
    )


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_an_init_takes_the_next_epoch_and_forgets_the_one_before(state: int) -> None:
    decision = init(given(state, last_producer_epoch=4))
    assert decision.producer == Claim(ID, EPOCH + 1)
    assert decision.transaction is not None
    assert decision.transaction.last_producer_epoch == -1


def test_an_init_during_a_transaction_aborts_it_first() -> None:
    decision = init(given(ONGOING))
    assert decision.error_code == BUSY
    assert decision.transaction == fence(given(ONGOING), NOW)
    assert decision.transaction.state == PREPARE_ABORT
    assert decision.transaction.producer_epoch == EPOCH + 1


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
@pytest.mark.parametrize("claim", [None, Claim(ID, 1), Claim(1, 1)])
def test_nothing_is_told_while_markers_are_written(state: int, claim: Claim | None) -> None:
    assert init(given(state), claim) == (BUSY, None, Claim(-1, -1))


def test_a_claim_must_be_of_the_present_epoch_or_repeat_the_last_call() -> None:
    first = init(given(), Claim(ID, EPOCH))
    assert first.producer == Claim(ID, EPOCH + 1)
    assert first.transaction is not None
    again = init(first.transaction, Claim(ID, EPOCH))
    assert again.producer == Claim(ID, EPOCH + 1)
    assert init(first.transaction, Claim(ID, EPOCH - 1)).error_code == FENCED
    assert init(first.transaction, Claim(ID + 1, EPOCH + 1)).error_code == FENCED


def test_a_producer_that_another_one_fenced_can_not_repeat_its_way_back() -> None:
    second = init(given(last_producer_epoch=EPOCH - 1)).transaction
    assert init(second, Claim(ID, EPOCH)).error_code == FENCED
    assert init(second, Claim(ID, EPOCH - 1)).error_code == FENCED


def test_when_epochs_run_out_a_new_id_follows_and_the_old_one_may_repeat() -> None:
    used = given(producer_epoch=LAST_EPOCH - 1)
    decision = init(used, Claim(ID, LAST_EPOCH - 1))
    assert decision.producer == Claim(99, 0)
    assert init(decision.transaction, Claim(ID, LAST_EPOCH - 1)).producer == Claim(99, 0)
    assert init(decision.transaction, Claim(ID, LAST_EPOCH - 2)).error_code == FENCED
    assert init(used, Claim(ID, 3)).error_code == FENCED


def test_an_id_below_the_least_one_is_given_up_for_who_may_go_on() -> None:
    assert init(given(), None, ID).producer == Claim(ID, EPOCH + 1)  # it is not below
    decision = init(given(), None, 99)
    assert decision.producer == Claim(99, 0)
    assert init(decision.transaction, Claim(ID, EPOCH), 99).error_code == FENCED
    claimed = init(given(), Claim(ID, EPOCH), 99)
    assert claimed.producer == Claim(99, 0)
    assert init(claimed.transaction, Claim(ID, EPOCH), 99).producer == Claim(99, 0)  # a repetition
    assert init(claimed.transaction, Claim(99, 0), 99).producer == Claim(99, 1)
    for epoch in (EPOCH - 1, 0):
        assert init(given(), Claim(ID, epoch), 99).error_code == FENCED
        assert init(claimed.transaction, Claim(ID, epoch), 99).error_code == FENCED


@pytest.mark.parametrize(
    ("state", "committed", "epoch", "code", "begins"),
    [
        (EMPTY, False, EPOCH, OK, PREPARE_ABORT),
        (EMPTY, True, EPOCH, WRONG, None),
        (EMPTY, False, EPOCH - 1, FENCED, None),
        (EMPTY, True, EPOCH - 1, FENCED, None),
        (COMPLETE_ABORT, False, EPOCH - 1, OK, None),
        (COMPLETE_ABORT, False, EPOCH, OK, PREPARE_ABORT),
        (COMPLETE_ABORT, True, EPOCH - 1, WRONG, None),
        (COMPLETE_ABORT, True, EPOCH, WRONG, None),
        (COMPLETE_COMMIT, False, EPOCH - 1, WRONG, None),
        (COMPLETE_COMMIT, False, EPOCH, OK, PREPARE_ABORT),
        (COMPLETE_COMMIT, True, EPOCH - 1, OK, None),
        (COMPLETE_COMMIT, True, EPOCH, WRONG, None),
        (ONGOING, True, EPOCH, OK, PREPARE_COMMIT),
        (ONGOING, False, EPOCH, OK, PREPARE_ABORT),
        (ONGOING, True, EPOCH - 1, FENCED, None),
        (ONGOING, True, EPOCH + 1, FENCED, None),
        (PREPARE_COMMIT, True, EPOCH - 1, BUSY, None),
        (PREPARE_COMMIT, True, EPOCH + 1, BUSY, None),
    ],
)
def test_the_end_of_a_transaction_in_version_2(state, committed, epoch, code, begins) -> None:
    decision = end(given(state, client_version=TV_2), epoch, committed=committed)
    assert decision.error_code == code
    if begins is None:
        assert decision.transaction is None
    else:
        assert decision.transaction is not None
        assert decision.transaction.state == begins
        assert decision.producer == Claim(ID, EPOCH + 1)
    if code == OK and begins is None:
        assert decision.producer == Claim(ID, EPOCH)


@pytest.mark.parametrize(
    ("state", "committed", "epoch", "code"),
    [
        (EMPTY, True, EPOCH, WRONG),
        (EMPTY, False, EPOCH, WRONG),
        (COMPLETE_COMMIT, True, EPOCH, OK),
        (COMPLETE_COMMIT, False, EPOCH, WRONG),
        (COMPLETE_ABORT, False, EPOCH, OK),
        (COMPLETE_ABORT, True, EPOCH, WRONG),
        (COMPLETE_COMMIT, True, EPOCH - 1, FENCED),
        (COMPLETE_COMMIT, True, EPOCH + 1, FENCED),
        (PREPARE_COMMIT, True, EPOCH, BUSY),
        (PREPARE_COMMIT, True, EPOCH + 1, FENCED),
        (ONGOING, True, EPOCH, OK),
    ],
)
def test_the_end_of_a_transaction_of_an_older_client(state, committed, epoch, code) -> None:
    decision = end(given(state), epoch, committed=committed, version=TV_0)
    assert decision.error_code == code
    assert decision.producer == Claim(-1, -1)
    if state == ONGOING:
        assert decision.transaction is not None
        assert decision.transaction.producer_epoch == EPOCH


def test_the_last_epoch_marks_the_end_and_a_new_id_goes_on() -> None:
    current = given(ONGOING, producer_epoch=LAST_EPOCH - 1)
    decision = end(current, LAST_EPOCH - 1, committed=True)
    prepared = decision.transaction
    assert decision.producer == Claim(99, 0)
    assert prepared is not None
    assert (prepared.producer_id, prepared.producer_epoch) == (ID, LAST_EPOCH)
    completed = complete(prepared, NOW + 1)
    assert (completed.producer_id, completed.producer_epoch) == (99, 0)
    assert completed.state == COMPLETE_COMMIT
    again = end(completed, LAST_EPOCH - 1, committed=True)
    assert again == (OK, None, Claim(99, 0))


def test_partitions_gather_until_the_end_and_begin_anew_behind_it() -> None:
    claim = Claim(ID, EPOCH)
    one, two = frozenset({TopicPartition("t", 0)}), frozenset({TopicPartition("t", 1)})
    first = add_partitions(given(COMPLETE_COMMIT), claim, one, TV_2, NOW).transaction
    assert first is not None
    assert (first.state, first.partitions, first.started_ms) == (ONGOING, one, NOW)
    assert add_partitions(first, claim, one, TV_2, NOW + 5) == (OK, None, Claim(-1, -1))
    second = add_partitions(first, claim, two, TV_2, NOW + 5).transaction
    assert second is not None
    assert (second.partitions, second.started_ms) == (one | two, NOW)


@pytest.mark.parametrize("state", [EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_ABORT])
def test_a_record_keeps_all_but_the_epoch_before(state: int) -> None:
    transaction = given(
        state, previous_producer_id=3, next_producer_id=4, client_version=TV_2,
        last_producer_epoch=4,
    )  # fmt: skip
    record = record_of(transaction)
    assert record.value is not None
    read = type(record.value).decode(record.value.encode(1), 1)
    assert from_value(NAME, read) == transaction._replace(last_producer_epoch=-1)


def test_a_status_that_is_none_is_told() -> None:
    record = record_of(given())
    assert record.value is not None
    record.value.transaction_status = 9
    with pytest.raises(ValueError, match="'tx' has the status 9"):
        from_value(NAME, record.value)


@pytest.mark.parametrize(
    ("fields", "accepted"),
    [
        ({}, True),
        ({"state_filters": ["Empty", "nonsense"]}, False),
        ({"state_filters": ["Ongoing"]}, True),
        ({"producer_id_filters": [ID]}, True),
        ({"producer_id_filters": [ID + 1]}, False),
        ({"duration_filter": 9}, True),
        ({"duration_filter": 10}, False),
        ({"transactional_id_pattern": "t"}, False),
        ({"transactional_id_pattern": "t."}, True),
        ({"transactional_id_pattern": ""}, True),
    ],
)
def test_what_a_filter_accepts(fields, accepted) -> None:
    wanted = TransactionFilter.of(ListTransactionsRequest(**fields))
    found = given(ONGOING)
    shown = wanted.accepts(found, NOW) and wanted.matches(found.transactional_id)
    assert shown is accepted


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("tx-.*", "tx-1", True),
        ("tx-.*", "my tx-1", False),
        ("my .*", "my tx", True),
        ("tx", "tx-1", False),
        ("(a+)+b", "a" * 200, False),  # at once
        ("(ü+)+b", "ü" * 200, False),
    ],
)
def test_a_pattern_matches_whole_ids(pattern: str, name: str, matches: bool) -> None:
    wanted = TransactionFilter.of(ListTransactionsRequest(transactional_id_pattern=pattern))
    assert wanted.matches(name) is matches


@pytest.mark.parametrize(
    ("pattern", "words"),
    [("[", "missing ]"), ("a{2,1}", "invalid repetition size"), ("(?=a)", "invalid perl operator")],
)
def test_a_pattern_that_is_none_in_re2_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TransactionFilter.of(ListTransactionsRequest(transactional_id_pattern=pattern))


def test_partitions_are_told_in_the_order_of_topics_and_indexes() -> None:
    places = [TopicPartition(topic, index) for topic in "cab" for index in (30, 4, 11, 0)]
    assert in_order(frozenset(places)) == sorted(places)
    told = topics_of(frozenset(places))
    assert [(topic, told[topic]) for topic in told] == [(t, [0, 4, 11, 30]) for t in "abc"]
