"""Planted bugs in what the five documents promise that a test finds, and not the simulation. Each
is a change of kstore's code. tests/sim/mutations.py has those that the simulation finds; for
retries with KIP-391, that is "forgotten-givers".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kstore.broker.api import RequestContext
from kstore.clients.core.producer.sender import Sender
from kstore.clients.io.nodes import Nodes

Put = Callable[[Any, str, Any], None]
"""Replaces an attribute, as setattr does."""


class Bug(NamedTuple):
    """A planted bug, and the tests that fail with it."""

    plant: Callable[[Put], None]
    tests: tuple[str, ...]
    explanation: str


def _nobody_is_avoided(put: Put) -> None:
    put(Nodes, "avoid", lambda self, connection: None)


def _fenced_epochs_again(put: Put) -> None:
    put(Sender, "is_over", lambda self, tp, topic_id, leader_epoch: False)


def _fields_for_everybody(put: Put) -> None:
    put(RequestContext, "extended", property(lambda self: True))


BUGS = {
    "nobody-is-avoided": Bug(
        _nobody_is_avoided,
        (
            "tests/clients/io/test_outdated_brokers.py"
            "::test_a_coordinator_that_was_replaced_is_looked_for_at_another_broker",
            "tests/documents/test_kip232.py"
            "::test_a_broker_that_remembers_the_predecessor_is_no_dead_end",
        ),
        "a client asks the same outdated broker for ever (KIP-232)",
    ),
    "fenced-epochs-again": Bug(
        _fenced_epochs_again,
        (
            "tests/clients/io/test_fenced_producer.py"
            "::test_metadata_is_asked_for_before_anything_is_sent_again",
        ),
        "a producer sends a refused leader epoch again before it asks for metadata (KIP-359)",
    ),
    "fields-for-everybody": Bug(
        _fields_for_everybody,
        (
            "tests/broker/requests/test_extension_fields.py"
            "::test_who_does_not_ask_gets_kafkas_bytes",
        ),
        "answers have kstore's tagged fields for clients that did not ask for them",
    ),
}
"""Every planted bug by its name."""
