"""Shows findings: as text, or as one JSON object per line."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterable

from kstore.cli.doctor.checks import Result
from kstore.cli.doctor.findings import Finding, NotChecked, Severity, counted

__all__ = ["Report"]


class Report:
    """Shows and counts results as they arrive."""

    def __init__(self, *, as_json: bool, verbose: bool) -> None:
        self.as_json = as_json
        self.verbose = verbose
        """Whether to show checks that found nothing."""
        self.errors = 0
        self.warnings = 0
        self.not_checked = 0
        self.checks: set[str] = set()

    def show(self, results: Iterable[Result]) -> None:
        """Show each result and flush, because some checks take seconds."""
        for name, result in results:
            self.checks.add(name)
            if isinstance(result, Finding):
                self._count(result)
            elif result is not None:
                self.not_checked += 1
            text = self._json(name, result) if self.as_json else self._lines(name, result)
            if text:
                print(text, flush=True)

    def end(self) -> None:
        """The totals."""
        sums = {
            "checks": len(self.checks),
            "errors": self.errors,
            "warnings": self.warnings,
            "not_checked": self.not_checked,
        }
        if self.as_json:
            print(json_text.dumps({"summary": sums}))
            return
        print(
            f"{counted(sums['checks'], 'check')}: {counted(self.errors, 'error')}, "
            f"{counted(self.warnings, 'warning')}"
            + (f", {self.not_checked} not checked" if self.not_checked else "")
        )

    def _count(self, finding: Finding) -> None:
        if finding.severity is Severity.ERROR:
            self.errors += 1
        else:
            self.warnings += 1

    def _json(self, name: str, result: Finding | NotChecked | None) -> str:
        if isinstance(result, Finding):
            return json_text.dumps(result.row(name))
        if result is not None:
            return json_text.dumps({"check": name, "not_checked": result.reason})
        return json_text.dumps({"check": name, "ok": True}) if self.verbose else ""

    def _lines(self, name: str, result: Finding | NotChecked | None) -> str:
        if isinstance(result, Finding):
            return "\n".join(
                (
                    f"{result.severity.upper()}  {name}: {result.subject}",
                    f"    found    {result.evidence}",
                    f"    means    {result.meaning}",
                    f"    fix      {result.fix}",
                    "",
                )
            )
        if result is not None:
            return f"not checked  {name}: {result.reason}" if self._tells(result) else ""
        return f"ok  {name}" if self.verbose else ""

    def _tells(self, result: NotChecked) -> bool:
        """Checks that could not run because no broker answers are shown only if `verbose`."""
        return self.verbose or "no broker answers" not in result.reason
