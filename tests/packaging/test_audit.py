"""The scan of dependencies: what fails it, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.packaging.audit import EXTRAS, NOBODY_ANSWERED, audit, main, needed_by


def row(name: str, *fixes: str, vulnerable: bool = True) -> dict[str, Any]:
    vulns = [{"id": "PYSEC-1", "fix_versions": list(fixes), "aliases": []}] if vulnerable else []
    return {"name": name, "version": "1.0", "vulns": vulns}


def test_a_vulnerability_of_run_time_that_is_fixed_elsewhere_fails() -> None:
    code, said = audit({"dependencies": [row("Lmdb", "1.1")]}, {"lmdb"})
    assert code == 1
    assert said[0] == "Lmdb 1.0 (run time): PYSEC-1, fixed in 1.1"


def test_what_tests_alone_use_and_what_nobody_has_fixed_is_only_told() -> None:
    rows = [row("pytest", "2"), row("lmdb"), row("uvloop", vulnerable=False)]
    code, said = audit({"dependencies": rows}, {"lmdb", "uvloop"})
    assert code == 0
    assert len(said) == 3


EDITABLE = {"name": "kstore", "skip_reason": "distribution marked as editable"}
UNKNOWN = {"name": "lmdb", "skip_reason": "Dependency not found"}


@pytest.mark.parametrize("rows", [None, [], [UNKNOWN], [EDITABLE], [UNKNOWN, EDITABLE]])
def test_nothing_is_well_where_nobody_answered(rows: list[dict[str, Any]] | None) -> None:
    code, said = audit(None if rows is None else {"dependencies": rows}, {"lmdb"})
    assert code == NOBODY_ANSWERED
    assert said[0].startswith("NOT AUDITED")
    assert "--offline" in said[0]


def test_a_package_that_the_service_does_not_know_fails() -> None:
    rows = [UNKNOWN, EDITABLE, row("uvloop", vulnerable=False)]
    code, said = audit({"dependencies": rows}, {"lmdb", "uvloop"})
    assert code == 1
    assert said == [
        "not audited: lmdb: Dependency not found",
        "1 of 2 packages looked at, 0 findings",
    ]
    assert audit({"dependencies": rows[1:]}, {"lmdb", "uvloop"})[0] == 0


def test_who_says_offline_asks_nobody_and_passes_aloud(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("tests.packaging.audit._report", lambda: asked.append("asked"))
    assert main(["--offline"]) == 0
    assert asked == []
    assert capsys.readouterr().out.startswith("NOT AUDITED: nobody was asked")
    assert main([]) == NOBODY_ANSWERED
    assert asked == ["asked"]
    assert main(["--quiet"]) == 2


def test_run_time_is_what_the_extras_need_and_not_what_tests_need() -> None:
    needed = needed_by("kstore", EXTRAS)
    assert {"lmdb", "uvloop", "typer", "kazoo", "cryptography"} <= needed
    assert not {"pytest", "kio", "kstore"} & needed
