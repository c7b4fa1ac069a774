"""The responses of each API to many users with one right each, about existing and missing
resources. Other modules compare the responses of two brokers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kstore.broker.api import API_TABLE
from kstore.errors import ProtocolError
from kstore.protocol.registry import APIS
from kstore.protocol.schema import Message, parse_versions
from kstore.protocol.security.acls import DeleteAclsFilter, DeleteAclsRequest
from tests.conformance.probes.compare import plain
from tests.conformance.probes.half_allowed import Question, is_ours
from tests.conformance.probes.secured import USERS, SecuredPeer
from tests.conformance.probes.seeds import Unit, prepare, seed

UNKNOWN_ID = uuid.UUID("11111111-2222-3333-4444-555555555555")
WITHOUT_RIGHTS = {
    17: "SaslHandshake: before there is a user",
    18: "ApiVersions: anybody may ask",
    36: "SaslAuthenticate: before there is a user",
}
DELETE_TOPICS = 20
ASKED = sorted(
    key
    for key, row in API_TABLE.items()
    if not row.internal and key not in WITHOUT_RIGHTS and key < 10_000
)
"""What is asked: all that both brokers serve and that rights matter for."""
THERE, ABSENT = "there", "absent"
_WITH_OPERATIONS = (
    "include_authorized_operations",
    "include_topic_authorized_operations",
    "include_cluster_authorized_operations",
)


class Asked(NamedTuple):
    """One question: a request of an API at a version, by a user, about an existing or missing
    resource.
    """

    api_key: int
    version: int
    user: str
    about: str

    def __str__(self) -> str:
        return f"{APIS[self.api_key].name} v{self.version} by {self.user}, {self.about}"


Ask = Callable[[SecuredPeer], Iterator[tuple[Asked, Any]]]


def answers(
    peer: SecuredPeer, api_key: int, version: int, users: Iterable[str] = USERS
) -> Iterator[tuple[Asked, Any]]:
    """The responses of one API at one version to all users, one after the other."""
    there, absent = Unit(peer, api_key, version), Unit(peer, api_key, version)
    absent.name = f"{there.name}-absent"
    absent.topic_id, absent.group = UNKNOWN_ID, f"{absent.name}-g"
    prepare(there)
    for user in users:
        for about, unit in ((THERE, there), (ABSENT, absent)):
            unit.number += 1
            if api_key == DELETE_TOPICS and about == THERE:
                _make(unit)
            said = _said(peer, request(unit), version, user, there.owns)
            yield Asked(api_key, version, user, about), said
    peer.reset()


def answers_to(peer: SecuredPeer, question: Question) -> Iterator[tuple[Asked, Any]]:
    """The responses to all users about two resources, of which they may have a right to one."""
    message = question.ask(peer)
    version = question.version
    if version is None:
        version = peer.version_for(message.API_KEY)
    for user in USERS:
        asked = Asked(message.API_KEY, version, user, question.name)
        yield asked, _said(peer, question.ask(peer), version, user, is_ours)
    peer.reset()


def _make(unit: Unit) -> None:
    """The topic that the next request names."""
    from tests.conformance.probes.story import settle
    from tests.conformance.probes.topics import create

    message = create(unit.fresh)
    settle(unit.peer, message, unit.peer.ask(message, unit.peer.version_for(19)))


def request(unit: Unit) -> Message:
    """The unit's request. It asks for authorized operations if the API supports that."""
    message = seed(unit)
    if isinstance(message, DeleteAclsRequest):
        message.filters = [
            DeleteAclsFilter(
                resource_type_filter=2, resource_name_filter=unit.topic, pattern_type_filter=3,
                principal_filter="User:a", host_filter="*", operation=3, permission_type=3,
            )
        ]  # fmt: skip
    for name in _WITH_OPERATIONS:
        spec = type(message).SPECS.get(name)
        if spec is not None and _covers(spec.versions, unit.version):
            setattr(message, name, True)
    return message


def _said(
    peer: SecuredPeer,
    message: Message,
    version: int,
    user: str,
    ours: Callable[[str], bool],
) -> Any:
    try:
        return plain(peer.ask(message, version, user), ours=ours)
    except ConnectionError:
        peer.reset()
        return "closed"
    except TimeoutError:
        peer.reset()
        return "no answer"
    except ProtocolError as error:
        peer.reset()
        return f"not understood: {error}"


def _covers(versions: str, version: int) -> bool:
    low, high = parse_versions(versions)
    return low <= version <= high
