"""``kstore token``: delegation tokens. ``create`` prints a secret once; other commands name a token
by its id, so that no secret is in a process's arguments.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kstore.cli.admin_command import admin_command
from kstore.cli.arguments import parse_duration_ms
from kstore.cli.output import Output

if TYPE_CHECKING:
    from kstore.clients import AdminClient
    from kstore.clients.admin import DelegationToken

__all__ = ["app"]

app = typer.Typer(
    help="Create, list, renew and expire delegation tokens.", no_args_is_help=True
)  # fmt: skip

COLUMNS = ["token_id", "owner", "requester", "renewers", "issued", "expires", "max"]
FAR_MS = 253_402_300_800_000
"""The year 10000."""
TokenId = Annotated[str, typer.Argument(metavar="ID", help="The token's id.")]


def _row(token: DelegationToken) -> dict[str, Any]:
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": ",".join(token.renewers),
        "issued": _time(token.issue_timestamp_ms),
        "expires": _time(token.expiry_timestamp_ms),
        "max": _time(token.max_timestamp_ms),
    }


def _time(ms: int) -> str:
    if ms >= FAR_MS:
        return "never"
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


def _find(admin: AdminClient, token_id: str) -> DelegationToken:
    for token in admin.describe_delegation_tokens():
        if token.token_id == token_id:
            return token
    raise typer.BadParameter(
        f"no token {token_id!r} is visible to you: `kstore token list` shows your tokens"
    )


@admin_command(app, "create", "kstore token create --renewer User:bob --max-lifetime 2d")
def create(
    admin: AdminClient,
    out: Output,
    renewer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE:NAME",
            help="A principal that may also renew and expire the token; may be repeated.",
        ),
    ] = None,
    max_lifetime: Annotated[
        str | None,
        typer.Option(
            help="The time after which it can no longer be renewed; by default the broker's limit.",
        ),
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE:NAME",
            help="The owner of the token; by default you.",
        ),
    ] = None,
) -> None:
    """Create a token and print its secret: the SCRAM password of the token."""
    life_ms = None if max_lifetime is None else parse_duration_ms(max_lifetime)
    token = admin.create_delegation_token(
        renewers=renewer or (), max_lifetime_ms=life_ms, owner=owner
    )
    row = _row(token) | {"hmac": token.password}
    out.print(row, f"{token.token_id} {token.password}")


@admin_command(app, "list", "kstore token list --owner User:alice")
def list_tokens(
    admin: AdminClient,
    out: Output,
    owner: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE:NAME",
            help="Show the tokens of this owner; may be repeated. By default all tokens.",
        ),
    ] = None,
) -> None:
    """List the tokens that you may see, without their secrets."""
    out.table([_row(token) for token in admin.describe_delegation_tokens(owner or None)], COLUMNS)


@admin_command(app, "renew", "kstore token renew sYkYOCEhS2ePBFTtAuoOcA --period 12h")
def renew(
    admin: AdminClient,
    out: Output,
    token_id: TokenId,
    period: Annotated[
        str | None,
        typer.Option(
            help="How long from now until it expires; by default the broker's limit.",
        ),
    ] = None,
) -> None:
    """Extend the lifetime of a token."""
    period_ms = None if period is None else parse_duration_ms(period)
    end = _time(admin.renew_delegation_token(_find(admin, token_id), period_ms=period_ms))
    out.print({"token_id": token_id, "expires": end}, f"{token_id} expires at {end}")


@admin_command(app, "expire", "kstore token expire sYkYOCEhS2ePBFTtAuoOcA")
def expire(
    admin: AdminClient,
    out: Output,
    token_id: TokenId,
    period: Annotated[
        str | None,
        typer.Option(
            help="How long from now until it expires; by default it expires and is "
            "removed at once.",
        ),
    ] = None,
) -> None:
    """Expire a token: now, or after some time."""
    period_ms = None if period is None else parse_duration_ms(period)
    end = _time(admin.expire_delegation_token(_find(admin, token_id), period_ms=period_ms))
    words = "is removed" if period_ms is None else f"expires at {end}"
    out.print({"token_id": token_id, "expires": end}, f"{token_id} {words}")
