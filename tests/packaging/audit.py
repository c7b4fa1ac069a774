"""`python -m tests.packaging.audit`: are there known vulnerabilities in what kstore depends on?

It asks the vulnerability service through pip-audit, for a minute at most. It fails where a package
that kstore needs at run time, with any of its extras, has one that a newer version fixes (all
others are told), where the service does not know a package (1), and where nobody answers (3).
`--offline` asks nobody, says so, and passes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("arrow", "run", "sasl", "spark", "tls", "zookeeper")
LIMIT_S = 60
USAGE_ERROR = 2
NOBODY_ANSWERED = 3
COMMAND = (
    "pip_audit", "--local", "--skip-editable", "--format=json", "--progress-spinner=off",
    "--timeout=5",
)  # fmt: skip


class Finding(NamedTuple):
    """A known vulnerability of an installed package."""

    package: str
    version: str
    name: str
    fixed_in: tuple[str, ...]
    at_run_time: bool

    @property
    def fails(self) -> bool:
        """Whether something can and must be done about it."""
        return self.at_run_time and bool(self.fixed_in)

    def __str__(self) -> str:
        """One line for a person."""
        where = "run time" if self.at_run_time else "tests"
        fixed = ", ".join(self.fixed_in) or "no version yet"
        return f"{self.package} {self.version} ({where}): {self.name}, fixed in {fixed}"


def needed_by(package: str, extras: Iterable[str] = ()) -> set[str]:
    """The names of the installed packages that a package needs, and those that these need."""
    seen: set[tuple[str, str]] = set()
    todo = [(package, ""), *((package, extra) for extra in extras)]
    while todo:
        name, extra = todo.pop()
        key = canonicalize_name(name)
        if (key, extra) in seen:
            continue
        try:
            rows = [Requirement(row) for row in requires(name) or ()]
        except PackageNotFoundError:
            continue
        seen.add((key, extra))
        for row in rows:
            if row.marker is None or row.marker.evaluate({"extra": extra}):
                todo += [(row.name, wanted) for wanted in ("", *row.extras)]
    return {key for key, _ in seen} - {canonicalize_name(package)}


def findings(report: dict[str, Any], at_run_time: set[str]) -> Iterator[Finding]:
    """The findings in pip-audit's report."""
    for row in report.get("dependencies", ()):
        for each in row.get("vulns", ()):
            yield Finding(
                row["name"],
                row["version"],
                each["id"],
                tuple(each.get("fix_versions", ())),
                canonicalize_name(row["name"]) in at_run_time,
            )


def audit(report: dict[str, Any] | None, at_run_time: set[str]) -> tuple[int, list[str]]:
    """The exit code and the message; without a report, the service did not answer."""
    rows = [] if report is None else report.get("dependencies", [])
    rows = [row for row in rows if "editable" not in row.get("skip_reason", "")]
    looked_at = [row for row in rows if "skip_reason" not in row]
    if not looked_at:
        return NOBODY_ANSWERED, [
            f"NOT AUDITED: the vulnerability service answered for none of {len(rows)} packages; "
            "go where it can be reached, or pass --offline to go on without"
        ]
    found = sorted(findings({"dependencies": looked_at}, at_run_time))
    unknown = [f"{row['name']}: {row['skip_reason']}" for row in rows if "skip_reason" in row]
    lines = [str(each) for each in found]
    lines += [f"not audited: {each}" for each in unknown]
    lines.append(f"{len(looked_at)} of {len(rows)} packages looked at, {len(found)} findings")
    return int(bool(unknown) or any(each.fails for each in found)), lines


def _report() -> dict[str, Any] | None:
    try:
        done = subprocess.run(
            [sys.executable, "-m", *COMMAND], capture_output=True, timeout=LIMIT_S, check=False
        )
        found = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def main(arguments: Sequence[str]) -> int:
    """Audit, print the result and return the exit code."""
    if list(arguments) == ["--offline"]:
        print("NOT AUDITED: nobody was asked (--offline); nothing is known of dependencies")
        return 0
    if arguments:
        print(f"the only option is --offline, not {arguments[0]}", file=sys.stderr)
        return USAGE_ERROR
    code, said = audit(_report(), needed_by("kstore", EXTRAS))
    print("\n".join(said))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
