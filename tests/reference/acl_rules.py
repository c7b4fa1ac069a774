"""Rules for an authorizer in the form of the tests: a list, where the broker groups them by
pattern.
"""

from __future__ import annotations

from collections.abc import Iterable

from kstore.acls import Acl
from kstore.broker.state.security.authorizer import Authorizer, Pattern, Rules


def load(authorizer: Authorizer, acls: Iterable[Acl]) -> bool:
    """Have it know these rules and no others; whether that changed anything."""
    wanted: dict[Pattern, set[Acl]] = {pattern: set() for pattern in authorizer.patterns()}
    for acl in acls:
        pattern = (acl.resource_type, acl.pattern_type, acl.resource_name)
        wanted.setdefault(pattern, set()).add(acl)
    changed = [
        pattern for pattern, found in wanted.items() if authorizer.put(pattern, Rules.of(found))
    ]
    return bool(changed)
