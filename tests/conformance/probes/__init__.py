"""The cases that probe.py sends to both brokers, with a module for each family of APIs."""

from tests.conformance.probes.admin import ADMIN_CASES
from tests.conformance.probes.configs import CONFIG_CASES
from tests.conformance.probes.consumer_groups import CONSUMER_GROUP_CASES
from tests.conformance.probes.data import DATA_CASES
from tests.conformance.probes.groups import GROUP_CASES
from tests.conformance.probes.malformed.structures import STRUCTURE_CASES
from tests.conformance.probes.shares.stories import SHARE_GROUP_CASES
from tests.conformance.probes.shares.structures import SHARE_STRUCTURE_CASES
from tests.conformance.probes.streams_groups import STREAMS_GROUP_CASES
from tests.conformance.probes.topics import TOPIC_CASES
from tests.conformance.probes.transactions import TRANSACTION_CASES

CASES = [
    *TOPIC_CASES,
    *CONFIG_CASES,
    *DATA_CASES,
    *GROUP_CASES,
    *CONSUMER_GROUP_CASES,
    *STREAMS_GROUP_CASES,
    *SHARE_GROUP_CASES,
    *SHARE_STRUCTURE_CASES,
    *ADMIN_CASES,
    *TRANSACTION_CASES,
    *STRUCTURE_CASES,
]
