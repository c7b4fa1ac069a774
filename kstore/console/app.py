"""The console as an ASGI application: its routes, and the rules for all requests.

Each response forbids frames and all content that does not come from the console. A request that
changes something needs the session's token, and must not come from another site.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kstore.console.cluster.sessions import LoginError, Session, Sessions
from kstore.console.cluster.settings import BEARER, ConsoleSettings, Login
from kstore.console.pages import (
    access,
    configs,
    groups,
    history,
    overview,
    produce,
    quotas,
    records,
    topics,
    transactions,
)
from kstore.console.pages.page import Page, PageError, form_of, render
from kstore.errors import ErrorCode, KafkaError

__all__ = ["console_app"]

LOGGER = logging.getLogger("kstore.console")
STATIC = Path(__file__).parent / "pages" / "static"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PROXY_HEADER = "x-kstore-proxy"
"""The header with which a broker proves that it forwards a request."""
STATUS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 404,
}


class View(NamedTuple):
    """A page: its path, its handler, and whether it changes the cluster (then it is POST)."""

    path: str
    answer: Callable[[Page], Awaitable[Response]]
    changes: bool = False


VIEWS = (
    View("/", overview.brokers),
    View("/ui/brokers/{broker:int}", overview.broker),
    View("/ui/topics", topics.topics),
    View("/ui/topics", topics.create, True),
    View("/ui/topics/{topic}", topics.topic),
    View("/ui/topics/{topic}/partitions", topics.expand, True),
    View("/ui/topics/{topic}/elect", topics.elect, True),
    View("/ui/topics/{topic}/delete", topics.delete, True),
    View("/ui/topics/{topic}/records", records.browse),
    View("/ui/topics/{topic}/tail", records.live),
    View("/ui/topics/{topic}/produce", produce.form),
    View("/ui/topics/{topic}/produce", produce.send, True),
    View("/ui/topics/{topic}/history", history.of_topic),
    View("/ui/groups", groups.groups),
    View("/ui/groups/{group}", groups.group),
    View("/ui/groups/{group}/reset", groups.reset_plan),
    View("/ui/groups/{group}/reset", groups.reset, True),
    View("/ui/groups/{group}/delete", groups.delete, True),
    View("/ui/transactions", transactions.transactions),
    View("/ui/acls", access.acls),
    View("/ui/acls", access.create_acl, True),
    View("/ui/acls/delete", access.delete_acl, True),
    View("/ui/users", access.users),
    View("/ui/users", access.set_user, True),
    View("/ui/users/delete", access.delete_user, True),
    View("/ui/configs", configs.resources),
    View("/ui/configs/{kind}/{name:path}", configs.configs),
    View("/ui/configs/{kind}/{name:path}", configs.change, True),
    View("/ui/quotas", quotas.quotas),
    View("/ui/quotas", quotas.change, True),
    View("/ui/history", history.history),
)


def console_app(settings: ConsoleSettings) -> ASGIApp:
    """The application of one console."""
    console = _Console(settings)
    routes = [
        Mount("/ui/static", StaticFiles(directory=STATIC), name="static"),
        Route("/ui/login", console.login_form, methods=["GET"]),
        Route("/ui/login", console.log_in, methods=["POST"]),
        Route("/ui/logout", console.log_out, methods=["POST"]),
        *(
            Route(view.path, console.endpoint(view), methods=["POST" if view.changes else "GET"])
            for view in VIEWS
        ),
    ]
    inner = Starlette(
        routes=routes,
        lifespan=console.lifespan,
        exception_handlers={HTTPException: console.not_there},
    )
    return _Guard(inner, settings)


class _Guard:
    """Adds headers to every response, and refuses some requests."""

    def __init__(self, inner: ASGIApp, settings: ConsoleSettings) -> None:
        self._inner = inner
        self._local_only = settings.login is Login.NONE
        self._key = settings.proxy_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        problem = self._problem(scope["method"], Headers(scope=scope))
        if problem:
            await PlainTextResponse(f"{problem}\n", 403)(scope, receive, send_with_headers)
        else:
            await self._inner(scope, receive, send_with_headers)

    def _problem(self, method: str, headers: Headers) -> str:
        """Why a request is refused: a foreign host name (DNS rebinding), or another site's page."""
        if self._key and not _equal(headers.get(PROXY_HEADER, ""), self._key):
            return "only the broker may use this address; send the request to the broker"
        host = headers.get("host", "")
        if self._local_only and not _is_loopback(host):
            return "without a login, only requests to localhost are answered"
        if method in {"GET", "HEAD"}:
            return ""
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site not in {None, "same-origin", "none"}:
            return f"another site ({site}) is not allowed to change anything"
        if origin is not None and urlsplit(origin).netloc != host:
            return f"{origin[:200]} is not allowed to change anything"
        return ""


def _equal(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class _Console:
    """The sessions, and how a view is called with one."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._sessions = Sessions(settings)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """From the first request to the last."""
        self._sessions.start()
        try:
            yield
        finally:
            await self._sessions.close()

    def _session(self, request: Request) -> Session | None:
        return self._sessions.find(request.cookies.get(_cookie(request)))

    def endpoint(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        """The view for starlette."""

        async def answer(request: Request) -> Response:
            session = self._session(request)
            if session is None:
                return _to_login(request)
            page = Page(request, session, self._settings, {})
            try:
                if view.changes:
                    page.form = await form_of(request)
                    self._may_change(page)
                session.sampler.look()
                return await view.answer(page)
            except PageError as error:
                return page.render("error.html", error.status, words=str(error))
            except KafkaError as error:
                status = STATUS.get(error.code, 502)
                return page.render("error.html", status, words=str(error))

        return answer

    def _may_change(self, page: Page) -> None:
        if not _equal(page.form.get("csrf", ""), page.session.csrf):
            raise PageError("the form is from another session: go back, reload and try again", 403)
        if self._settings.read_only:
            raise PageError("this console is read-only", 403)

    async def not_there(self, request: Request, error: Exception) -> Response:
        """404 and 405, as a page."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        session = self._session(request)
        if session is None:
            return _to_login(request)
        page = Page(request, session, self._settings, {})
        words = f"There is no page at {request.url.path}." if status == 404 else str(error)
        return page.render("error.html", status, words=words)

    # ---- login ----

    async def login_form(self, request: Request) -> Response:
        """GET /ui/login."""
        if self._session(request) is not None:
            return RedirectResponse("/", 303)
        return self._login_page(request)

    def _login_page(self, request: Request, problem: str = "", user: str = "") -> Response:
        status = 401 if problem else 200
        next_page = _safe_next(request.query_params.get("next", "/"))
        kind = self._settings.login
        return render(
            "login.html", status, kind=kind, problem=problem, user=user, next_page=next_page,
            tokens=BEARER in self._settings.tried, only_tokens={BEARER} == {*self._settings.tried},
        )  # fmt: skip

    async def log_in(self, request: Request) -> Response:
        """POST /ui/login."""
        try:
            form = await form_of(request)
            user = form.get("user", "").strip()
            session = await self._sessions.log_in(user, form.get("password", ""))
        except (LoginError, PageError) as error:
            return self._login_page(request, str(error))
        answer = RedirectResponse(_safe_next(form.get("next", "/")), 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(
            _cookie(request), session.key, httponly=True, samesite="strict", secure=secure
        )
        LOGGER.info("%s has logged in", session.principal)
        return answer

    async def log_out(self, request: Request) -> Response:
        """POST /ui/logout."""
        session = self._session(request)
        form = await form_of(request)
        if session is not None and _equal(form.get("csrf", ""), session.csrf):
            await self._sessions.log_out(session)
        answer = RedirectResponse("/ui/login", 303)
        answer.delete_cookie(_cookie(request))
        return answer


def _to_login(request: Request) -> Response:
    if request.method != "GET" or request.url.path == "/":
        return RedirectResponse("/ui/login", 303)
    where = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/ui/login?next={quote(where, safe='')}", 303)


def _safe_next(text: str) -> str:
    """A path of this console; anything else becomes the first page."""
    is_own = text.startswith("/ui/") and "\\" not in text and not text.startswith("//")
    return text if is_own else "/"


def _cookie(request: Request) -> str:
    """The cookie's name. Browsers share cookies between ports, so the name has the port."""
    return f"kstore_console_{request.url.port or 'web'}"
