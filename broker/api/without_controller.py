"""What a client is told of a whole request that only the controller can answer, while there is no
controller to be had: one error, in the form of each API.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstore.protocol import config_resources, configs
from kstore.protocol.features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kstore.protocol.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from kstore.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from kstore.protocol.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kstore.protocol.topics import (
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

__all__ = ["failed"]


def failed(request: Any, version: int, code: int, message: str) -> Any:
    """The response that gives one error for all that was asked."""
    return FAILURES[type(request)](request, version, code, message)


def _create_topics(request: CreateTopicsRequest, version: int, code: int, message: str) -> Any:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=name, error_code=code, error_message=message)
            for name in names
        ]
    )


def _delete_topics(request: DeleteTopicsRequest, version: int, code: int, message: str) -> Any:
    asked = request.topics
    if version < 6:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=row.name, topic_id=row.topic_id, error_code=code, error_message=message
            )
            for row in asked
        ]
    )


def _create_partitions(
    request: CreatePartitionsRequest, version: int, code: int, message: str
) -> Any:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)
            for name in names
        ]
    )


def _elect_leaders(request: ElectLeadersRequest, version: int, code: int, message: str) -> Any:
    response = ElectLeadersResponse()
    if version >= 1:
        response.error_code = code
    for topic in request.topic_partitions or ():
        rows = [
            PartitionResult(partition_id=index, error_code=code, error_message=message)
            for index in topic.partitions
        ]
        response.replica_election_results.append(
            ReplicaElectionResult(topic=topic.topic, partition_result=rows)
        )
    return response


def _alter_reassignments(
    request: AlterPartitionReassignmentsRequest, version: int, code: int, message: str
) -> Any:
    response = AlterPartitionReassignmentsResponse(error_code=code, error_message=message)
    for topic in request.topics:
        rows = [
            ReassignablePartitionResponse(
                partition_index=row.partition_index, error_code=code, error_message=message
            )
            for row in topic.partitions
        ]
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=rows))
    return response


def _list_reassignments(
    request: ListPartitionReassignmentsRequest, version: int, code: int, message: str
) -> Any:
    return ListPartitionReassignmentsResponse(error_code=code, error_message=message)


def _alter_configs(request: Any, version: int, code: int, message: str) -> Any:
    """AlterConfigs and IncrementalAlterConfigs, whose responses look alike."""
    of = configs if isinstance(request, configs.IncrementalAlterConfigsRequest) else None
    rows = [
        (config_resources if of is None else of).AlterConfigsResourceResponse(
            error_code=code,
            error_message=message,
            resource_type=row.resource_type,
            resource_name=row.resource_name,
        )
        for row in request.resources
    ]
    if of is None:
        return config_resources.AlterConfigsResponse(responses=rows)
    return configs.IncrementalAlterConfigsResponse(responses=rows)


def _alter_quotas(request: AlterClientQuotasRequest, version: int, code: int, message: str) -> Any:
    entries = [
        AlterClientQuotasResponseEntryData(
            error_code=code,
            error_message=message,
            entity=[
                AlterClientQuotasResponseEntityData(
                    entity_type=row.entity_type, entity_name=row.entity_name
                )
                for row in entry.entity
            ],
        )
        for entry in request.entries
    ]
    return AlterClientQuotasResponse(entries=entries)


def _alter_scram(
    request: AlterUserScramCredentialsRequest, version: int, code: int, message: str
) -> Any:
    named = [row.name for row in request.deletions] + [row.name for row in request.upsertions]
    users = dict.fromkeys(named)
    results = [
        AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
        for user in users
    ]
    return AlterUserScramCredentialsResponse(results=results)


def _update_features(request: UpdateFeaturesRequest, version: int, code: int, message: str) -> Any:
    return UpdateFeaturesResponse(error_code=code, error_message=message)


FAILURES: dict[type, Callable[[Any, int, int, str], Any]] = {
    CreateTopicsRequest: _create_topics,
    DeleteTopicsRequest: _delete_topics,
    CreatePartitionsRequest: _create_partitions,
    ElectLeadersRequest: _elect_leaders,
    AlterPartitionReassignmentsRequest: _alter_reassignments,
    ListPartitionReassignmentsRequest: _list_reassignments,
    config_resources.AlterConfigsRequest: _alter_configs,
    configs.IncrementalAlterConfigsRequest: _alter_configs,
    AlterClientQuotasRequest: _alter_quotas,
    AlterUserScramCredentialsRequest: _alter_scram,
    UpdateFeaturesRequest: _update_features,
}
