"""What a hypervisor took from each core, by files in the format of /proc/stat."""

import os

import pytest

from kstore._fast.network.stolen_time import StolenTime

TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")


@pytest.fixture
def stat(tmp_path):
    return tmp_path / "stat"


def cpu(core, steal):
    return f"cpu{core} 10 20 30 40 50 60 70 {steal} 90 100"


def write(stat, *lines):
    stat.write_text("\n".join(["cpu  1 1 1 1 1 1 1 999 1 1", *lines, "intr 1 2 3", "ctxt 4", ""]))


def test_each_core_has_its_own_time(stat):
    write(stat, cpu(0, 5), cpu(1, 7))
    stolen = StolenTime(str(stat))
    write(stat, cpu(0, 5), cpu(1, 10))
    assert stolen.since_us(0) == 0
    assert stolen.since_us(1) == 3 * TICK_US


def test_it_counts_from_what_was_remembered(stat):
    write(stat, cpu(0, 5))
    stolen = StolenTime(str(stat))
    write(stat, cpu(0, 9))
    stolen.remember()
    assert stolen.since_us(0) == 0
    write(stat, cpu(0, 11))
    assert stolen.since_us(0) == 2 * TICK_US


def test_a_machine_without_steal_is_read_again_only_once_a_minute(stat):
    write(stat, cpu(0, 0))
    stolen = StolenTime(str(stat))
    write(stat, cpu(0, 50))
    for _ in range(239):
        stolen.remember()
        assert stolen.since_us(0) == 0
    stolen.remember()
    write(stat, cpu(0, 51))
    assert stolen.since_us(0) == TICK_US


def test_a_core_that_is_offline_has_no_line(stat):
    write(stat, cpu(0, 1), cpu(3, 4))
    stolen = StolenTime(str(stat))
    write(stat, cpu(0, 1), cpu(3, 6))
    assert [stolen.since_us(core) for core in (0, 1, 2, 3, 4, -1)] == [0, 0, 0, 2 * TICK_US, 0, 0]


@pytest.mark.parametrize("form", ["", "{0}", "cpu  {0}\ncpu0 1 2 {0}", "cpu  1\ncpu0 1 x {0} {0}"])
def test_a_file_in_another_format_tells_nothing(stat, form):
    stat.write_text(form.format(5))
    stolen = StolenTime(str(stat))
    stat.write_text(form.format(50))
    assert stolen.since_us(0) == 0


def test_old_times_explain_nothing(stat):
    write(stat, cpu(0, 5))
    stolen = StolenTime(str(stat))
    write(stat, cpu(0, 9))
    assert stolen.since_us(0, after_us=600_000) == 4 * TICK_US
    assert stolen.since_us(0, after_us=600_001) == 0


def test_without_the_file_nothing_is_known(tmp_path):
    assert StolenTime(str(tmp_path / "none")).since_us(0) == 0


def test_a_machine_with_many_cores_is_read_as_far_as_there_is_room(stat):
    write(stat, *(cpu(core, 1) for core in range(2000)))
    stolen = StolenTime(str(stat))
    write(stat, *(cpu(core, 2) for core in range(2000)))
    assert [stolen.since_us(core) for core in (0, 255, 256)] == [TICK_US, TICK_US, 0]
