"""The tables of all checks, and the loop that runs them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TypeVar

from kstore.cli.doctor.acl_checks import ACL_CHECKS
from kstore.cli.doctor.certificate_check import CERTIFICATES_ABOUT, certificates
from kstore.cli.doctor.client_checks import CLIENT_CHECKS
from kstore.cli.doctor.clock_check import CLOCK_ABOUT, clock
from kstore.cli.doctor.cluster import ClusterView
from kstore.cli.doctor.contradictions import SETTINGS_CHECKS
from kstore.cli.doctor.findings import Check, Finding, Limits, NotChecked
from kstore.cli.doctor.machine import Machine
from kstore.cli.doctor.machine_checks import MACHINE_CHECKS
from kstore.cli.doctor.partition_checks import PARTITION_CHECKS
from kstore.cli.doctor.port_checks import PORT_CHECKS
from kstore.cli.doctor.progress_checks import PROGRESS_CHECKS
from kstore.cli.doctor.reach_checks import REACH_CHECKS, brokers_answer
from kstore.errors import KafkaError

__all__ = ["BROKER_CHECKS", "CLIENT_CHECKS", "CLUSTER_CHECKS", "Result", "examine"]

T = TypeVar("T")
Result = tuple[str, Finding | NotChecked | None]
"""The check's name and one finding; None: the check found nothing."""

BROKER_CHECKS: tuple[Check[Machine], ...] = (*SETTINGS_CHECKS, *MACHINE_CHECKS, *PORT_CHECKS)
"""Checks that need the settings of a broker of this machine, but no running broker."""
CLUSTER_CHECKS: tuple[Check[ClusterView], ...] = (
    Check("answer", "whether a broker answers", brokers_answer),
    Check("clock", CLOCK_ABOUT, clock),
    *REACH_CHECKS,
    Check("certificates", CERTIFICATES_ABOUT, certificates),
    *PARTITION_CHECKS,
    *PROGRESS_CHECKS,
    *ACL_CHECKS,
)
"""Checks that need a connection to the cluster."""
NEEDS_NO_ANSWER = frozenset({"answer", "bootstrap", "clock"})


def examine(
    checks: Iterable[Check[T]],
    of: T,
    limits: Limits,
    only: Collection[str] = (),
    done: Collection[str] = (),
) -> Iterator[Result]:
    """Run the checks one after the other: all, or ``only`` these."""
    answers = True
    for check in checks:
        if check.name in done:
            continue
        if only and check.name not in only and check.name != "answer":
            continue
        if not answers and check.name not in NEEDS_NO_ANSWER:
            yield check.name, NotChecked(check.name, "no broker answers")
            continue
        found = list(_findings(check, of, limits))
        if check.name == "answer" and found:
            answers = False
        for each in found:
            yield check.name, each
        if not found:
            yield check.name, None


def _findings(check: Check[T], of: T, limits: Limits) -> Iterator[Finding | NotChecked]:
    try:
        yield from check.find(of, limits)
    except (KafkaError, OSError) as problem:
        yield NotChecked(check.name, str(problem) or type(problem).__name__)
