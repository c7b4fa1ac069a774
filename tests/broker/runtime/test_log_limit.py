"""How many log lines others can cause: a few for each group, some for all, and a count."""

from __future__ import annotations

from kstore.broker.runtime.log_limit import WINDOW_S, LogLimit, group_of
from tests.broker.harness.plane_harness import ManualLoop


class Limited:
    """A limit of two lines for a group and five for all, and the reports at the ends of windows."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.rest: list[tuple[str, int]] = []
        self.limit = LogLimit(
            self.loop,  # type: ignore[arg-type]
            lambda group, count: self.rest.append((group, count)),
            of_group=2,
            of_all=5,
        )

    def written(self, group: str, lines: int) -> int:
        return sum(self.limit.admits(group) for _ in range(lines))


def test_the_first_of_a_group_are_written_and_the_others_counted() -> None:
    limited = Limited()
    assert limited.written("a", 1000) == 2
    assert limited.written("b", 2) == 2
    limited.limit.end_window()
    assert limited.rest == [("a", 998)]
    assert limited.written("a", 3) == 2, "what comes later is written again"


def test_many_groups_write_no_more_than_all_may() -> None:
    limited = Limited()
    assert sum(limited.written(f"group {chr(97 + at % 26)}{at}", 1) for at in range(1000)) == 5
    limited.limit.end_window()
    assert limited.rest == [("", 995)]


def test_a_kind_is_written_once() -> None:
    limited = Limited()
    assert [limited.limit.admits("a", kind) for kind in ("x", "x", "y", "z")] == [
        True, False, True, False
    ]  # fmt: skip
    limited.limit.end_window()
    assert limited.rest == [("a", 2)]


def test_a_window_ends_by_itself_and_one_without_lines_has_no_timer() -> None:
    limited = Limited()
    assert limited.loop.timers == []
    limited.written("a", 3)
    [timer] = limited.loop.timers
    assert timer.delay_s == WINDOW_S
    limited.loop.fire_timers()
    assert limited.rest == [("a", 1)]
    limited.limit.end_window()
    assert limited.rest == [("a", 1)]


def test_numbers_and_quoted_names_make_no_group_of_their_own() -> None:
    assert group_of("listener A: its request of 3 bytes") == group_of(
        "listener A: its request of 77 bytes"
    )
    assert group_of("no user 'eve'") == group_of("no user 'adam'")
    assert group_of("listener A: x") != group_of("listener B: x")
    assert len(group_of("x" * 10_000)) == 100
