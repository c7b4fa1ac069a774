"""The cluster: its brokers and controller, and its features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kstore.clients.admin.acls import AclOperation, operations_of
from kstore.clients.admin.routing import AdminBase, AnyBroker, Controller, Results, item_error
from kstore.errors import KafkaError
from kstore.items import Items, items_of, mapping_of
from kstore.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kstore.protocol.metadata.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kstore.protocol.metadata.features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kstore.version import installed_version

__all__ = [
    "BrokerDescription",
    "ClusterAdmin",
    "ClusterDescription",
    "FeatureRange",
    "FeatureUpdate",
    "FeaturesDescription",
]

UPGRADE_TYPES = {"upgrade": 1, "safe-downgrade": 2, "unsafe-downgrade": 3}


class BrokerDescription(NamedTuple):
    """A broker's id and address. `is_fenced`: it is registered, but does not serve clients."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, the controller's broker id (-1 if there is none), and the brokers."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None


class FeatureRange(NamedTuple):
    """The lowest and the highest version of a feature or API."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class FeaturesDescription:
    """Features by name: the versions that the broker which answered supports, and the cluster's
    finalized versions. `epoch` is the epoch of the finalized versions; -1 if there is none
    (KIP-584).
    """

    supported: Mapping[str, FeatureRange]
    finalized: Mapping[str, FeatureRange]
    epoch: int


class FeatureUpdate(NamedTuple):
    """The new version of a feature; 0 removes it. For a lower version set `kind` to
    "safe-downgrade" or "unsafe-downgrade".
    """

    level: int
    kind: Literal["upgrade", "safe-downgrade", "unsafe-downgrade"] = "upgrade"


class ClusterAdmin(AdminBase):
    """Requests about the cluster as a whole."""

    async def describe_cluster(
        self, *, fenced_brokers: bool = False, authorized_operations: bool = False
    ) -> ClusterDescription:
        """The cluster's brokers and controller. With fenced_brokers, brokers that do not serve
        clients now are included.
        """

        async def ask(node_id: int) -> ClusterDescription | KafkaError:
            request = DescribeClusterRequest(
                include_cluster_authorized_operations=authorized_operations,
                include_fenced_brokers=fenced_brokers,
            )
            at_least = 2 if fenced_brokers else 0
            answer = await self._ask(node_id, request, DescribeClusterResponse, at_least=at_least)
            brokers = sorted(
                BrokerDescription(row.broker_id, row.host, row.port, row.rack, row.is_fenced)
                for row in answer.brokers
            )
            return item_error(
                "the cluster", answer.error_code, answer.error_message
            ) or ClusterDescription(
                answer.cluster_id,
                answer.controller_id,
                tuple(brokers),
                operations_of(answer.cluster_authorized_operations),
            )

        return await self._one(AnyBroker(self._cluster), ask)

    async def describe_features(self) -> FeaturesDescription:
        """The features that a broker supports, and the cluster's finalized versions (KIP-584)."""

        async def ask(node_id: int) -> FeaturesDescription | KafkaError:
            request = ApiVersionsRequest(
                client_software_name="kstore", client_software_version=installed_version()
            )
            answer = await self._ask(node_id, request, ApiVersionsResponse, at_least=3)
            return item_error("features", answer.error_code) or FeaturesDescription(
                {
                    row.name: FeatureRange(row.min_version, row.max_version)
                    for row in answer.supported_features
                },
                {
                    row.name: FeatureRange(row.min_version_level, row.max_version_level)
                    for row in answer.finalized_features
                },
                answer.finalized_features_epoch,
            )

        return await self._one(AnyBroker(self._cluster), ask)

    async def describe_api_versions(
        self, brokers: Items[int] | None = None
    ) -> dict[int, dict[int, FeatureRange]]:
        """The versions of each API that brokers serve (None: all brokers), by broker id and API
        key.
        """
        if brokers is not None:
            brokers = items_of("brokers", brokers, int, "broker ids")

        async def ask(node_id: int) -> dict[int, FeatureRange] | KafkaError:
            request = ApiVersionsRequest(
                client_software_name="kstore", client_software_version=installed_version()
            )
            answer = await self._ask(node_id, request, ApiVersionsResponse)
            return item_error(f"versions of broker {node_id}", answer.error_code) or {
                row.api_key: FeatureRange(row.min_version, row.max_version)
                for row in answer.api_keys
            }

        return await self._every_broker(ask, brokers)

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate | int],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Raise or lower finalized features. A plain number raises a feature to that version. If
        one change is refused, no feature is changed.
        """
        rows = {
            name: FeatureUpdate(update) if isinstance(update, int) else update
            for name, update in mapping_of("updates", updates, "feature -> level").items()
        }

        async def ask(node_id: int, names: list[str]) -> dict[str, KafkaError | None]:
            request = UpdateFeaturesRequest(
                timeout_ms=self._request_timeout_ms,
                feature_updates=[
                    FeatureUpdateKey(
                        feature=name,
                        max_version_level=rows[name].level,
                        upgrade_type=UPGRADE_TYPES[rows[name].kind],
                    )
                    for name in names
                ],
                validate_only=validate_only,
            )
            answer = await self._ask(node_id, request, UpdateFeaturesResponse, at_least=1)
            whole = item_error("features", answer.error_code, answer.error_message)
            found: dict[str, KafkaError | None] = dict.fromkeys(names, whole)
            for row in answer.results:
                error = item_error(f"feature {row.feature!r}", row.error_code, row.error_message)
                found[row.feature] = error or whole
            return found

        route = Controller(self._cluster)
        return await self._each(rows, route, ask, raise_errors=raise_errors)
