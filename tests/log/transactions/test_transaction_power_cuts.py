"""The power fails in the middle of a transaction with flush="always": it is there wholly or not at
all, and what was acknowledged before is there.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kstore.env import SystemEnv
from kstore.log import open_log_dir
from kstore.log.local.local_log import LocalLog
from kstore.log.transactions.journal import Journal, Part
from kstore.log.transactions.transaction import Transaction
from tests.log.handling import abandon, values
from tests.reference.fault_fs import FaultyFileSystem

NAMES = ("a", "b", "c")


class PowerCutError(Exception):
    """The machine is off."""


class Machine:
    """Cuts the power at a step of the last transaction: 0 the journal is about to be written, 1 it
    is, 2 to 4 so many logs less one have their part, 5 all is synced, 6 the journal is cleared.
    """

    def __init__(self, fs: FaultyFileSystem, target: str, step: int, torn: str) -> None:
        self.fs, self.target, self.step, self.torn = fs, target, step, torn
        self.armed = False

    def at(self, step: int) -> None:
        if self.armed and step == self.step:
            self.fs.power_cut(self.target, torn=self.torn)
            raise PowerCutError

    def hook(self, monkeypatch: pytest.MonkeyPatch) -> None:
        write, clear, apply = Journal.write, Journal.clear, Transaction._apply

        def writing(journal: Journal, parts: list[Part], *, durable: bool) -> None:
            self.at(0)
            write(journal, parts, durable=durable)
            self.at(1)

        def clearing(journal: Journal) -> None:
            self.at(5)
            clear(journal)
            self.at(6)

        def applying(transaction: Transaction, made: list[tuple[LocalLog, bytearray]]) -> None:
            for count in range(len(made)):
                apply(transaction, made[count : count + 1])
                self.at(count + 2)

        monkeypatch.setattr(Journal, "write", writing)
        monkeypatch.setattr(Journal, "clear", clearing)
        monkeypatch.setattr(Transaction, "_apply", applying)


@pytest.mark.quick_one_in(8)
@pytest.mark.parametrize("torn", ["none", "any", "all"])
@pytest.mark.parametrize("step", range(7))
@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_leaves_a_transaction_whole_or_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, torn: str, seed: int
) -> None:
    chance = random.Random(seed)
    root = tmp_path / "disk"
    root.mkdir()
    fs = FaultyFileSystem(str(root), seed)
    machine = Machine(fs, str(tmp_path / "after"), step, torn)
    machine.hook(monkeypatch)
    logs = open_log_dir(root, flush="always", env=SystemEnv(fs=fs), segment_bytes=500)
    opened = [logs.log(name) for name in NAMES]
    for number in range(chance.randint(0, 12)):
        chance.choice(opened).append(b"single %d" % number)
        with logs.transaction() as t:
            for log in chance.sample(opened, 2):
                t.append_many(log, [b"%d" % number] * chance.randint(1, 3))
    before = {name: values(logs.log(name)) for name in NAMES}
    machine.armed = True
    with pytest.raises(PowerCutError), logs.transaction() as t:  # noqa: PT012 (its end raises)
        for log in opened:
            t.append_many(log, [b"last", b"one" * chance.randint(1, 40)])
    machine.armed = False
    abandon(logs)
    monkeypatch.undo()
    with open_log_dir(tmp_path / "after") as after:
        found = {name: values(after.log(name)) for name in NAMES}
        more = {name: found[name][len(before[name]) :] for name in NAMES}
        assert all(found[name][: len(before[name])] == before[name] for name in NAMES)
        assert len({len(rest) for rest in more.values()}) == 1, more
        whole = len(more["a"]) == 2
        assert whole or not more["a"]
        assert whole or step < 1
        assert not whole or step > 0
        assert all(after.log(name).append(b"x") == len(found[name]) for name in NAMES)
    with open_log_dir(tmp_path / "after") as again:
        assert values(again.log("a")) == [*found["a"], b"x"]


def test_records_that_were_truncated_after_a_transaction_stay_away(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    fs = FaultyFileSystem(str(root), 0)
    logs = open_log_dir(root, flush="always", env=SystemEnv(fs=fs))
    a, b = logs.log("a"), logs.log("b")
    for log in (a, b):
        log.append_many([b"old"] * 5)  # one batch, which truncation removes
    with logs.transaction() as t:
        t.append(a, b"1")
        t.append(b, b"2")
    for log in (a, b):
        log.truncate(2)
        log.append(b"new")
    logs.flush()
    fs.power_cut(str(tmp_path / "after"), torn="none")
    abandon(logs)
    with open_log_dir(tmp_path / "after") as after:
        assert values(after.log("a")) == values(after.log("b")) == [b"new"]
