"""The scan of dependencies: what fails it, and what does not."""

from __future__ import annotations

from typing import Any

from tests.packaging.audit import EXTRAS, audit, needed_by


def row(name: str, *fixes: str, vulnerable: bool = True) -> dict[str, Any]:
    vulns = [{"id": "PYSEC-1", "fix_versions": list(fixes), "aliases": []}] if vulnerable else []
    return {"name": name, "version": "1.0", "vulns": vulns}


def test_a_vulnerability_of_run_time_that_is_mended_elsewhere_fails() -> None:
    code, said = audit({"dependencies": [row("Lmdb", "1.1")]}, {"lmdb"})
    assert code == 1
    assert said[0] == "Lmdb 1.0 (run time): PYSEC-1, mended in 1.1"


def test_what_tests_alone_use_and_what_nobody_has_mended_is_only_told() -> None:
    rows = [row("pytest", "2"), row("lmdb"), row("uvloop", vulnerable=False)]
    code, said = audit({"dependencies": rows}, {"lmdb", "uvloop"})
    assert code == 0
    assert len(said) == 3


def test_a_service_that_is_out_of_reach_is_no_failure() -> None:
    skipped = {"name": "lmdb", "skip_reason": "Dependency not found"}
    for report in (None, {"dependencies": []}, {"dependencies": [skipped]}):
        code, said = audit(report, {"lmdb"})
        assert code == 0
        assert "out of reach" in said[0]


def test_run_time_is_what_the_extras_need_and_not_what_tests_need() -> None:
    needed = needed_by("kstore", EXTRAS)
    assert {"lmdb", "uvloop", "typer", "kazoo", "cryptography"} <= needed
    assert not {"pytest", "kio", "kstore"} & needed
