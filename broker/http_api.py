"""The broker's HTTP API: health, metrics, cluster, topics, and injected faults.

It listens on kstore.http.listener, and for metrics only on kstore.metrics.listener. Without either,
nothing of it is loaded. An error is a JSON object with one sentence.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kstore.acls import CLUSTER_NAME, AclOperation, AclResourceType
from kstore.broker.http_probes import Probes, StallResponder
from kstore.broker.http_server import (
    JSON,
    Answer,
    Request,
    address_of,
    is_local,
    is_loopback,
    serve_http,
)
from kstore.broker.metrics.page import MetricsPage
from kstore.broker.runtime.security.audit_log import HTTP_REQUEST
from kstore.broker.runtime.slices import Slices
from kstore.broker.state.exposition import form_for, page_lines
from kstore.broker.state.work import in_order
from kstore.config import ConfigError

if TYPE_CHECKING:
    from kstore.broker.compose.broker import Broker
    from kstore.broker.console import Console
    from kstore.broker.faults import FaultInjector
    from kstore.broker.metrics.loop_stall import LoopStall
    from kstore.broker.server import Server
    from kstore.broker.state.metadata.image import TopicImage

__all__ = ["HttpApi", "Listening", "serve_api", "serve_metrics"]

METRICS_LISTENER = "kstore.metrics.listener"
LISTENER, TOKEN = "kstore.http.listener", "kstore.http.token"
PRINCIPAL = "kstore.http.principal"
ENABLE_CONSOLE = "kstore.console.enable"
ENABLE_FAULTS = "kstore.fault.injection.enable"
LINES_PER_PIECE = 200
PARTITIONS_PER_PIECE = 200
MAX_ERROR_CHARS = 500
"""The limit of an error's text, which may quote a whole body."""


async def serve_metrics(broker: Broker, stall: LoopStall) -> tuple[asyncio.AbstractServer, str]:
    """Answer GET /metrics on kstore.metrics.listener. There is no authentication, so the address
    must be a loopback address.
    """
    url = broker.config[METRICS_LISTENER]
    host, _ = address_of(METRICS_LISTENER, url)
    if not is_loopback(host):
        raise ConfigError(
            f"{METRICS_LISTENER} is {url!r}: metrics are served without authentication, so only "
            f"on a loopback address such as 127.0.0.1; {LISTENER} serves them with a token",
            key=METRICS_LISTENER,
        )

    page = MetricsPage(broker, stall)

    async def answer(request: Request) -> Answer:
        if not is_local(request):
            return _strange_host()
        if request.path != "/metrics":
            return _error(404, "metrics are at /metrics")
        if request.method not in {"GET", "HEAD"}:
            return _error(405, "/metrics supports only GET", allow="GET, HEAD")
        return _metrics(broker, page, request)

    server, base = await serve_http(METRICS_LISTENER, url, answer)
    return server, f"{base}/metrics"


class Listening:
    """The sockets of kstore.http.listener."""

    def __init__(self, broker: Broker, accepting: asyncio.AbstractServer) -> None:
        self._accepting = accepting
        self._stall_responder = StallResponder(broker.holds, accepting)

    def close(self) -> None:
        """Stop accepting connections."""
        self._stall_responder.close()
        self._accepting.close()


async def serve_api(server: Server, stall: LoopStall) -> tuple[Listening, str]:
    """Listen on kstore.http.listener; returns the listening sockets and their URL.

    Raises ConfigError for an invalid setting, or if other machines can reach the address and there
    is no token. Raises ListenError.
    """
    config = server.broker.config
    url, token = config[LISTENER], config[TOKEN]
    host, _ = address_of(LISTENER, url)
    if not token and not is_loopback(host):
        raise ConfigError(
            f"{LISTENER} is {url!r}, which other machines can reach: set {TOKEN}, which clients "
            "then send as Authorization: Bearer TOKEN, or listen on 127.0.0.1",
            key=LISTENER,
        )
    accepting, base = await serve_http(LISTENER, url, HttpApi(server, stall, token).answer)
    return Listening(server.broker, accepting), base


def _principal(broker: Broker) -> str:
    return str(broker.config[PRINCIPAL])


def _may(
    broker: Broker, request: Request, operation: AclOperation, kind: AclResourceType, name: str
) -> bool:
    """Whether HTTP requests may do an operation. They have the rights of kstore.http.principal."""
    return broker.authorizer is None or broker.authorizer.authorize(
        _principal(broker), request.client_host, operation, kind, name
    )


def _metrics(broker: Broker, page: MetricsPage, request: Request) -> Answer:
    by_name = _may(broker, request, AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME)
    form = form_for(request.headers.get("accept", ""))
    lines = page_lines(page.metrics(by_name=by_name), form)
    return Answer(200, _pieces(lines), form.content_type, (("Vary", "Accept"),))


def _strange_host() -> Answer:
    return _error(403, f"without {TOKEN}, only requests to localhost are answered")


class HttpApi:
    """Answers the requests to one broker. ``token`` is the token that clients must send; with None
    or "" they need none.
    """

    def __init__(self, server: Server, stall: LoopStall, token: str | None) -> None:
        self._server = server
        self._page = MetricsPage(server.broker, stall)
        self._probes = Probes(server)
        self._token = token
        self._injector: FaultInjector | None = None
        self._console: Console | None = None

    @property
    def broker(self) -> Broker:
        """The broker."""
        return self._server.broker

    async def answer(self, request: Request) -> Answer:
        """Answer a request."""
        probe = self._probes.answer(request)
        if probe is not None:
            return probe
        if self.broker.config[ENABLE_CONSOLE] and _is_console_path(request.path):
            return await self._console_answer(request)
        if self._token and not self._is_known(request):
            return _error(
                401, "send the token as Authorization: Bearer TOKEN", www_authenticate="Bearer"
            )
        if not self._token and not is_local(request):
            return _strange_host()
        resource, _, rest = request.path.strip("/").partition("/")
        if resource == "faults" and not self._may_break(request):
            return _error(
                403,
                f"{_principal(self.broker)} is not authorized to ALTER the cluster: see "
                f"{PRINCIPAL}",
            )
        routes = _FAULT_ROUTES if resource == "faults" and rest else _ROUTES.get(resource, {})
        if not routes or (rest and resource != "faults"):
            return _error(404, f"there is no {request.path}; there are /{', /'.join(_ROUTES)}")
        method = "GET" if request.method == "HEAD" else request.method
        if method not in routes:
            allowed = ", ".join(routes)
            return _error(405, f"{request.path} has {allowed}", allow=allowed)
        return routes[method](self, request)

    async def _console_answer(self, request: Request) -> Answer:
        """The web console's answer. Browsers send no token, so the console has its own logins."""
        if not self._token and not is_local(request):
            return _strange_host()
        if self._console is None:
            from kstore.broker.console import Console

            self._console = Console(self.broker, self._token)
        return await self._console.answer(request)

    def _is_known(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        wanted = (self._token or "").encode()
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), wanted)

    def _may_break(self, request: Request) -> bool:
        """Whether the client may list and inject faults. A denial is logged."""
        what = AclResourceType.CLUSTER, CLUSTER_NAME
        if _may(self.broker, request, AclOperation.ALTER, *what):
            return True
        assert self.broker.authorizer is not None
        self.broker.authorizer.on_denied(
            _principal(self.broker), request.client_host, AclOperation.ALTER, *what, HTTP_REQUEST
        )
        return False

    def health(self, request: Request) -> Answer:
        """200 while the broker serves clients, 503 before that and while it stops."""
        status = self._probes.status
        row = {"status": status, "node_id": self.broker.node_id}
        return _json(200 if status == "ready" else 503, row)

    def metrics(self, request: Request) -> Answer:
        """All metrics, in the text format of Prometheus or OpenMetrics."""
        return _metrics(self.broker, self._page, request)

    def cluster(self, request: Request) -> Answer:
        """The live brokers that this broker knows."""
        image = self.broker.image
        rows = [
            {
                "id": each.node_id,
                "rack": each.rack,
                "endpoints": [end._asdict() for end in each.endpoints],
            }
            for each in sorted(image.brokers.values())
        ]
        return _json(200, {
            "cluster_id": image.cluster_id, "node_id": self.broker.node_id,
            "controller_id": image.controller_id, "brokers": rows,
        })  # fmt: skip

    def topics(self, request: Request) -> Answer:
        """The topics that the HTTP principal may describe, with their partitions."""

        def may(name: str) -> bool:
            return _may(self.broker, request, AclOperation.DESCRIBE, AclResourceType.TOPIC, name)

        return Answer(200, _topic_pieces(self.broker.image.topics, may), JSON)

    # ---- faults ----

    def faults(self, request: Request) -> Answer:
        """The active faults, and how often each was applied."""
        rows = [] if self._injector is None else self._injector.rules.rows()
        return _json(200, {"faults": rows})

    def add_faults(self, request: Request) -> Answer:
        """Add a fault, or a list of them: all or none."""
        from kstore.broker.state.faults import FaultError, read_fault

        if not self.broker.config[ENABLE_FAULTS]:
            return _error(
                403, f"fault injection is off: start the broker with {ENABLE_FAULTS}=true"
            )
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON:
            return _error(415, f"send a fault as {JSON}, not as {kind or 'nothing'}")
        injector = self._made_injector()
        try:
            given = json.loads(request.body)
            rows = given if isinstance(given, list) else [given]
            numbers = injector.add([read_fault(row) for row in rows])
        except FaultError as problem:
            return _error(400, str(problem))
        except ValueError as problem:
            return _error(400, f"the body is not JSON: {problem}")
        except RecursionError:
            return _error(400, "the body has lists or objects that are nested too deeply")
        return _json(201, {"faults": injector.rules.rows(numbers)})

    def clear_faults(self, request: Request) -> Answer:
        """Remove all faults. The response lists them, with how often each was applied."""
        if self._injector is None:
            return _json(200, {"faults": []})
        rows = self._injector.rules.rows()
        self._injector.clear()
        return _json(200, {"faults": rows})

    def remove_fault(self, request: Request) -> Answer:
        """Remove one fault. The response shows it."""
        text = request.path.strip("/").partition("/")[2]
        rules = None if self._injector is None else self._injector.rules
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        if rules is None or number not in rules:
            return _error(404, f"there is no fault {text}")
        assert self._injector is not None
        rows = rules.rows([number])
        self._injector.remove(number)
        return _json(200, {"faults": rows})

    def _made_injector(self) -> FaultInjector:
        if self._injector is None:
            from kstore.broker.faults import FaultInjector

            self._injector = FaultInjector(self._server)
        return self._injector


_Route = Callable[[HttpApi, Request], Answer]
_ROUTES: dict[str, dict[str, _Route]] = {
    "health": {"GET": HttpApi.health},
    "metrics": {"GET": HttpApi.metrics},
    "cluster": {"GET": HttpApi.cluster},
    "topics": {"GET": HttpApi.topics},
    "faults": {
        "GET": HttpApi.faults, "POST": HttpApi.add_faults, "DELETE": HttpApi.clear_faults
    },
}  # fmt: skip
_FAULT_ROUTES: dict[str, _Route] = {"DELETE": HttpApi.remove_fault}


def _is_console_path(path: str) -> bool:
    """Whether a request is for the web console."""
    return path in {"/", "/ui"} or path.startswith("/ui/")


def _json(status: int, row: dict[str, Any]) -> Answer:
    return Answer(status, json.dumps(row).encode() + b"\n")


def _error(status: int, sentence: str, **headers: str) -> Answer:
    extra = tuple((name.replace("_", "-").title(), value) for name, value in headers.items())
    return _json(status, {"error": sentence[:MAX_ERROR_CHARS]})._replace(headers=extra)


async def _pieces(lines: Iterator[str]) -> AsyncIterator[bytes]:
    """Join lines into pieces and leave out empty lines. Other work on the loop runs between the
    pieces, and also while many lines are empty.
    """
    piece: list[str] = []
    slices = Slices()
    for line in lines:
        if line:
            piece.append(line)
        if len(piece) >= LINES_PER_PIECE:
            yield "\n".join((*piece, "")).encode()
            piece = []
        await slices.breathe()
    yield "\n".join((*piece, "")).encode() if piece else b""


async def _topic_pieces(
    topics: Mapping[str, TopicImage], may: Callable[[str], bool]
) -> AsyncIterator[bytes]:
    """A JSON object with all visible topics, a few partitions per piece."""
    before = beginning = '{"topics": ['
    slices = Slices()
    for name in await slices.do(in_order([*topics], str)):
        await slices.breathe()
        if not may(name):
            continue
        topic = topics[name]
        head = {"name": name, "topic_id": str(topic.topic_id), "internal": topic.internal}
        yield (before + json.dumps(head)[:-1] + ', "partitions": [').encode()
        before = ", "
        for start in range(0, len(topic.partitions), PARTITIONS_PER_PIECE):
            some = topic.partitions[start : start + PARTITIONS_PER_PIECE]
            rows = [
                {
                    "partition": index, "leader": each.leader, "leader_epoch": each.leader_epoch,
                    "replicas": each.replicas, "isr": each.isr,
                }
                for index, each in enumerate(some, start)
            ]  # fmt: skip
            yield (", " * (start > 0) + json.dumps(rows)[1:-1]).encode()
        yield b"]}"
    yield (b"]}\n" if before is not beginning else b'{"topics": []}\n')
