"""A stand-in for a schema registry: the HTTP requests of serializers, with schemas in memory. Also
the schema of an order in each format. tests/works_with has real registries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.beside.http_answers import HttpAnswers, HttpRequest, Reply

AVRO_ORDER = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int"}]}
JSON_ORDER = {
    "title": "Order", "type": "object", "properties": {"amount": {"type": "integer"}},
}  # fmt: skip


class SchemaRegistry(HttpAnswers):
    """Serves until it is left; `url` is its address, `subjects` the ids by subject."""

    def __init__(self) -> None:
        super().__init__()
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}

    def answer(self, asked: HttpRequest) -> Reply:
        path = asked.path.split("?")[0].strip("/").split("/")
        status, found = self.find(asked.method, path, json.loads(asked.body or b"{}"))
        kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        return Reply(status, json.dumps(found).encode(), kind)

    def find(self, method: str, path: list[str], body: dict[str, Any]) -> tuple[int, Any]:
        match method, path:
            case "GET", ["schemas", "ids", number] if int(number) <= len(self.schemas):
                return 200, self.schemas[int(number) - 1]
            case "POST", ["subjects", subject, "versions"]:
                return 200, self._row(subject, self._register(subject, body))
            case "POST", ["subjects", subject] if body in self._of(subject):
                return 200, self._row(subject, self.schemas.index(body) + 1)
            case "GET", ["subjects", subject, "versions"] if self.subjects.get(subject):
                return 200, [at + 1 for at in range(len(self.subjects[subject]))]
            case "GET", ["subjects", subject, "versions", version] if self.subjects.get(subject):
                at = int(version) - 1 if version.isdecimal() else -1
                return 200, self._row(subject, self.subjects[subject][at])
        return 404, {"error_code": 40403, "message": "not found"}

    def _of(self, subject: str) -> list[dict[str, Any]]:
        return [self.schemas[number - 1] for number in self.subjects.get(subject, ())]

    def _register(self, subject: str, body: dict[str, Any]) -> int:
        if body not in self.schemas:
            self.schemas.append(body)
        number = self.schemas.index(body) + 1
        known = self.subjects.setdefault(subject, [])
        if number not in known:
            known.append(number)
        return number

    def _row(self, subject: str, number: int) -> dict[str, Any]:
        version = self.subjects[subject].index(number) + 1
        return {**self.schemas[number - 1], "subject": subject, "id": number, "version": version}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    """One that runs, without schemas."""
    with SchemaRegistry() as running:
        yield running


def order_class() -> Any:
    """A class of Protobuf messages, as protoc would make it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    message = file.message_type.add(name="Order")
    kind = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="amount", number=1, type=kind.TYPE_INT32, label=kind.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
