"""What simulated members of groups do when the outcome of a request is not known."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sim.history import History
from tests.sim.workloads.client import UnansweredError
from tests.sim.workloads.owning import Owner


class Member(Owner):
    """Gets an answer or not."""

    heard = True

    async def tell_leaving(self, epoch: int) -> None:
        if not self.heard:
            raise UnansweredError


@pytest.mark.parametrize("heard", [True, False])
def test_who_does_not_know_whether_it_has_left_joins_as_another_member(heard: bool) -> None:
    """Its leave request may still arrive, and would end its next membership."""
    client: Any = SimpleNamespace(name="one")
    member = Member(client, History(), "g", "t")
    member.heard = heard
    member.epoch = 3
    asyncio.run(member._leave())
    assert member.epoch == 0
    assert (member.member_id == "one") == heard
    assert member.member_id
