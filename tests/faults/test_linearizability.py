"""The checker itself: it accepts the possible answers of one register, and finds impossible
ones.
"""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.reference.linearizability import Operation, is_linearizable


def write(value: int, called: float, returned: float = float("inf")) -> Operation:
    return Operation("write", value, called, returned)


def read(value: int, called: float, returned: float) -> Operation:
    return Operation("read", value, called, returned)


def test_a_read_during_a_write_may_find_either_value():
    for found in (0, 1):
        assert is_linearizable([write(1, 0, 10), read(found, 2, 3)], 0)


def test_a_read_after_a_write_returned_finds_it():
    assert is_linearizable([write(1, 0, 1), read(1, 2, 3)], 0)
    assert not is_linearizable([write(1, 0, 1), read(0, 2, 3)], 0)


def test_what_was_read_once_is_not_unread():
    assert not is_linearizable([write(1, 0, 10), read(1, 2, 3), read(0, 4, 5)], 0)


def test_a_write_without_an_answer_may_happen_later_or_never():
    lost = write(1, 0)
    assert is_linearizable([lost, read(0, 1, 2)], 0)
    assert is_linearizable([lost, read(0, 1, 2), read(1, 3, 4)], 0)
    assert not is_linearizable([lost, read(0, 1, 2), read(1, 3, 4), read(0, 5, 6)], 0)


@given(st.integers(0, 2**32))
def test_what_a_real_register_answered_is_linearizable_and_a_changed_answer_is_not(seed: int):
    rng = random.Random(seed)
    value, now, history = 0, 0.0, []
    for number in range(1, 12):
        now += rng.random()
        called, moment = now - rng.random(), now
        returned = moment + rng.random()
        if rng.random() < 0.5:
            value = number
            history.append(write(number, called, returned))
        else:
            history.append(read(value, called, returned))
    assert is_linearizable(history, 0)
    never_written = [op._replace(value=99) if op.kind == "read" else op for op in history]
    assert is_linearizable(never_written, 0) == all(op.kind == "write" for op in history)
