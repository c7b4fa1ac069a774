"""Which lines brokers may log while others of their cluster are killed, stopped and paused, each
with the reason. A line that none of them explains fails a soak.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

_TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ([A-Z]+) ")


class Explanation(NamedTuple):
    """A kind of line, and why a broker logs it in a soak."""

    pattern: str
    """Where the line's text, behind time and level, begins with it."""
    reason: str


EXPLAINED = (
    Explanation(r"broker \d+ is the controller, epoch \d+", "the controller was killed"),
    Explanation(
        r"broker \d+ is no longer the controller", "it was paused for longer than its session"
    ),
    Explanation(r"this broker is no longer controller, epoch \d+", "it was paused for too long"),
    Explanation(r"'\S+' now has \d+ partitions", "it was expanded"),
    Explanation(
        r"the number of partitions of '\S+' changes, but .* did not answer: other brokers",
        "leaders were killed or paused meanwhile",
    ),
    Explanation(r"'\S+' keeps its \d+ partitions", "leaders were killed or paused meanwhile"),
    Explanation(
        r"'\S+' has \d+ partitions, and the controller prepared it",
        "the controller was killed or paused while a topic was expanded",
    ),
    Explanation(r"a write of the controller failed", "its session ended meanwhile"),
    Explanation(r"\S+-\d+: \[[\d, ]*\] lag behind", "followers were killed or paused"),
    Explanation(r"ISR changes can't be sent to the controller", "the controller was killed"),
    Explanation(r"broker \d+ could not be reached", "the broker was killed"),
    Explanation(r"repeating the requests to broker \d+", "the broker was killed"),
    Explanation(r"the transaction of .* timed out", "its producer was left without an end"),
    Explanation(r"controlled shutdown", "the controller changed while a broker stopped"),
    Explanation(
        r"\S+: the marker of .* was not written: ", "a topic was deleted within a transaction"
    ),
    Explanation(r"\S+: the marker of .* is missing", "a partition's leader was killed"),
    Explanation(
        r"topic \S+ was deleted: it gets no marker of ", "a topic was deleted within a transaction"
    ),
    Explanation(r".* is not completed here", "the coordinator moved"),
    Explanation(
        r"\S+: opening it found \d+ segments, \d+ bytes scanned"
        r"(; \d+ bytes of a torn tail cut off)?$",
        "the broker was killed: its logs' ends were checked, and nothing was lost",
    ),
    Explanation(
        r"\S+ ended at \d+, of which \d+ were committed; now it is ",
        "a follower truncated to its leader's epochs after a kill",
    ),
    Explanation(r"process \d+ hung with the coordination store locked", "it was paused"),
    Explanation(r"the loop was held for \d{1,3} ms by ", "others use its cores and disk"),
    Explanation(
        r"the loop was held for [\d,]+ ms by .* \(\d{1,3} ms on a core, \d{1,3} ms waiting for one,"
        r" \d{1,3} ms waiting for a disk or a lock, [\d,]+ ms stopped with the whole process\)",
        "it was paused",
    ),
    Explanation(r"(metrics are|the HTTP API is) at ", "a broker started"),
)

AFTER_A_STALL = (
    Explanation(r"this process was stopped for ", "the machine stood still"),
    Explanation(
        r"the coordination store has ended this broker's session", "the machine stood still"
    ),
    Explanation(r"broker \d+ is registered again", "the machine stood still"),
)
"""Explained too, if the soak's own process stood still, as it does with its machine."""


def unexplained(lines: Iterable[str], known: Iterable[Explanation] = EXPLAINED) -> Counter[str]:
    """The lines without an explanation, without digits, and how often each appeared. A traceback,
    or any other line without a time, belongs to the line before it.
    """
    patterns = re.compile("|".join(f"(?:{each.pattern})" for each in known))
    found: Counter[str] = Counter()
    current, expected = "", False
    for line in lines:
        begin = _TIME.match(line)
        if begin is None:
            if not line.strip() or expected:
                continue
            found[f"{current} | {line.strip()}" if current else line.strip()] += 1
            continue
        said = line[begin.end() :].strip()
        current = f"{begin[1]} {re.sub(r'[0-9]+', 'N', said)}"
        expected = patterns.match(said) is not None
        if not expected:
            found[current] += 1
    return found
