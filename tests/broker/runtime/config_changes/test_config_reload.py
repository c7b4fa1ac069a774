"""A broker reads again only the configs that another broker changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from types import SimpleNamespace
from typing import Any

import pytest

from kstore.broker.runtime.config_changes.config_reload import ConfigReload, UserReload
from kstore.broker.runtime.metadata.features import FEATURE_NODE


class Parts:
    """Records what must be read again."""

    def __init__(self, *, quotas_made: bool) -> None:
        self.read: list[Any] = []
        note = self.read.append

        async def in_turn(what: Any) -> None:
            note(what)

        async def run_blocking(call: Callable[[], Any]) -> Any:
            return call()

        def make_quotas() -> None:
            note("first quota")

        stored = SimpleNamespace(reload=lambda: note("quotas"), notify=lambda: note("quotas told"))
        quotas: Any = make_quotas
        make_quotas.made = SimpleNamespace(stored=stored) if quotas_made else None  # type: ignore[attr-defined]
        scram: Any = SimpleNamespace(made=SimpleNamespace(reload=lambda paths: note(sorted(paths))))
        node: Any = SimpleNamespace(run_blocking=run_blocking)
        security: Any = SimpleNamespace(users_changed=lambda: note("users changed"))
        configs: Any = SimpleNamespace(reload=in_turn)
        topics: Any = SimpleNamespace(
            reload_configs=lambda names: in_turn(names if names is None else ("topics", *names))
        )
        acls: Any = SimpleNamespace(reload=lambda paths: in_turn(("acls", *paths)))
        users = UserReload(node, scram, quotas, security)
        self.reload = ConfigReload(configs, topics, users, acls, lambda: in_turn("features"))


@pytest.mark.parametrize(
    ("paths", "read"),
    [
        ({FEATURE_NODE}, ["features"]),
        ({"/kafka-acl/Topic/t"}, [("acls", "/kafka-acl/Topic/t")]),
        ({"/config/topics/t"}, [("topics", "t")]),
        ({"/config/groups/g"}, ["groups"]),
        ({"/config/brokers/1"}, ["brokers", "users changed"]),
        ({"/config/clients/c"}, ["quotas", "quotas told"]),
        (
            {"/config/users/u"},
            [["/config/users/u"], "quotas", "quotas told", "users changed"],
        ),
        (
            {"/config"},
            ["brokers", "client-metrics", "groups", ["/config"], "quotas", "quotas told",
             "users changed", None],
        ),
    ],
)  # fmt: skip
def test_what_lies_there_is_read_again(paths: Set[str], read: list[Any]) -> None:
    parts = Parts(quotas_made=True)
    asyncio.run(parts.reload.reload(paths))
    assert parts.read == read


def test_the_first_quota_of_the_cluster_has_quotas_made() -> None:
    parts = Parts(quotas_made=False)
    asyncio.run(parts.reload.reload({"/config/clients/c"}))
    assert parts.read == ["first quota"]
