"""The cases that probe.py tells to both brokers, one module per family of APIs."""

from tests.conformance.probes.admin import ADMIN_CASES
from tests.conformance.probes.data import DATA_CASES
from tests.conformance.probes.groups import GROUP_CASES
from tests.conformance.probes.topics import TOPIC_CASES

__all__ = ["CASES"]

CASES = [*TOPIC_CASES, *DATA_CASES, *GROUP_CASES, *ADMIN_CASES]
