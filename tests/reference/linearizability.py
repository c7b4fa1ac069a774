"""Whether a history of concurrent operations on one register is linearizable: whether each can be
given a moment between its call and its return so that the order of the moments explains every
answer (Herlihy and Wing; searched as by Wing and Gong, with a memory of what was tried).

Slow and plain, for histories of some hundred operations of few clients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Operation(NamedTuple):
    """A write of `value`, or a read that found it. A write whose outcome is not known returns at
    infinity: it may take effect at any time, or never.
    """

    kind: str
    value: int
    called: float
    returned: float = math.inf


def is_linearizable(history: Sequence[Operation], initial: int) -> bool:
    """Whether one register that begins with `initial` can have given these answers. Leave out reads
    without an answer.
    """
    operations = sorted(history)
    operations.sort(key=lambda op: op.called)
    must = frozenset(i for i, op in enumerate(operations) if op.returned < math.inf)
    tried: set[tuple[frozenset[int], int]] = set()
    # Operations that are done, by index, and the register's value after them.
    waiting: list[tuple[frozenset[int], int]] = [(frozenset(), initial)]
    while waiting:
        state = waiting.pop()
        if state in tried:
            continue
        tried.add(state)
        done, value = state
        left = must - done
        if not left:
            return True
        # A call that began after the first of the remaining ones returned cannot come before it.
        bound = min(operations[i].returned for i in left)
        for i, op in enumerate(operations):
            if op.called > bound:
                break
            if i in done:
                continue
            if op.kind == "write":
                waiting.append((done | {i}, op.value))
            elif op.value == value:
                waiting.append((done | {i}, value))
    return False
