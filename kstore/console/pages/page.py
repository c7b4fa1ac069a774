"""A request to the console: its session, its arguments, and its response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from kstore.acls import AclOperation
from kstore.console.cluster.admin import ConsoleAdmin
from kstore.console.cluster.sessions import Session
from kstore.console.cluster.settings import ConsoleSettings, Login
from kstore.console.pages.plots import plot
from kstore.console.pages.shown import (
    shown_age,
    shown_bytes,
    shown_count,
    shown_moment,
    shown_number,
    shown_seconds,
)

__all__ = ["Page", "PageError", "form_of", "may", "path", "render", "templates", "whole"]

MAX_FORM_BYTES = 256 * 1024
ROWS = 100
"""The number of rows of a list on one page."""

MENU = (
    ("b", "Brokers", "/"),
    ("t", "Topics", "/ui/topics"),
    ("g", "Groups", "/ui/groups"),
    ("x", "Transactions", "/ui/transactions"),
    ("a", "ACLs", "/ui/acls"),
    ("u", "Users", "/ui/users"),
    ("c", "Configs", "/ui/configs"),
    ("q", "Quotas", "/ui/quotas"),
    ("h", "History", "/ui/history"),
)


class PageError(Exception):
    """The request can't be answered: the message and the HTTP status."""

    def __init__(self, words: str, status: int = 400) -> None:
        super().__init__(words)
        self.status = status


def path(*parts: object) -> str:
    """A path below /ui, with each part quoted."""
    return "/ui/" + "/".join(quote(str(part), safe="") for part in parts)


def may(operations: Iterable[AclOperation] | None, wanted: AclOperation) -> bool:
    """Whether a broker's list of allowed operations contains one; without a list, all are
    allowed.
    """
    return operations is None or wanted in set(operations)


@cache
def templates() -> Environment:
    """All templates, with their filters."""
    found = Environment(
        loader=PackageLoader("kstore.console.pages"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    found.filters |= {
        "bytes": shown_bytes, "number": shown_number, "moment": shown_moment, "age": shown_age,
        "seconds": shown_seconds, "counted": shown_count,
    }  # fmt: skip
    found.globals |= {"path": path, "plot": plot, "MENU": MENU}
    return found


def render(template: str, status: int = 200, /, **values: Any) -> Response:
    """A rendered template as a response."""
    return HTMLResponse(templates().get_template(template).render(values), status)


class Page:
    """A request of a session. Its handler returns the result of one of the last methods."""

    def __init__(
        self, request: Request, session: Session, settings: ConsoleSettings, form: Mapping[str, str]
    ) -> None:
        self.request = request
        self.session = session
        self.settings = settings
        self.form = form

    @property
    def admin(self) -> ConsoleAdmin:
        """The session's admin client."""
        return self.session.admin

    def name(self, key: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[key])

    def text(self, key: str, default: str = "") -> str:
        """An argument of the query."""
        return self.request.query_params.get(key, default).strip()

    def number(self, key: str, default: int, low: int = 0, high: int = 2**63 - 1) -> int:
        """A number of the query, within limits. Raises PageError if it is not a number."""
        return whole(self.text(key), key, default, low, high)

    def rows(self, every: list[Any]) -> dict[str, Any]:
        """The part of a long list for this page, and links to its neighbours."""
        page = self.number("page", 1, 1, 10**6)
        pages = max(-(-len(every) // ROWS), 1)
        page = min(page, pages)
        links = {
            name: self.request.url.include_query_params(page=number).query
            for name, number in (("before", page - 1), ("after", page + 1))
            if 1 <= number <= pages
        }
        part = every[(page - 1) * ROWS : page * ROWS]
        return {"rows": part, "total": len(every), "page": page, "pages": pages, "links": links}

    def render(self, template: str, status: int = 200, /, **values: Any) -> Response:
        """The page in the common layout."""
        notices = list(self.session.notices)
        self.session.notices.clear()
        return render(
            template, status, session=self.session, settings=self.settings, notices=notices,
            here=self.request.url.path, csrf=self.session.csrf, page_of=self,
            may_log_out=self.settings.login is not Login.NONE, **values,
        )  # fmt: skip

    def done(self, sentence: str, where: str) -> Response:
        """After a change: redirect, and report it on the next page."""
        self.session.notices.append(("ok", sentence))
        return RedirectResponse(where, 303)

    def failed(self, sentence: str, where: str) -> Response:
        """After a change that failed."""
        self.session.notices.append(("error", sentence))
        return RedirectResponse(where, 303)


def whole(text: str, key: str, default: int, low: int, high: int) -> int:
    """A number as it was typed. Raises PageError if it is not a number, or out of range."""
    if not text:
        return default
    try:
        number = int(text)
    except ValueError:
        raise PageError(f"{key} is {text[:80]!r}, not a number") from None
    if not low <= number <= high:
        raise PageError(f"{key} is {number}: it must be between {low} and {high}")
    return number


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form. Raises PageError for a body that is too long or not a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise PageError("a form is sent as application/x-www-form-urlencoded", 415)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_FORM_BYTES:
            raise PageError(f"a form has up to {MAX_FORM_BYTES} bytes", 413)
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=False)
    except ValueError:
        raise PageError("the form is not UTF-8") from None
    return {name: value.replace("\r\n", "\n") for name, value in pairs}
