"""The top of the command tree: a command's module is imported when the command is called, so that
`kstore --help`, and each command, start without the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from kstore.cli.failure import guarded

__all__ = ["CommandModule", "LazyGroup"]


class CommandModule(NamedTuple):
    """Where a command is, and what `kstore --help` says of it.

    Its module has `app`, a Typer; or, where a function is named, that and EXAMPLE.
    """

    module: str
    help: str
    function: str = ""


class LazyGroup(TyperGroup):
    """A group whose commands are in `modules`, beside those that are registered as usual."""

    modules: ClassVar[dict[str, CommandModule]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Their names have to be here for a mistyped one to be told the nearest.
        self.commands: dict[str, Any] = {**dict.fromkeys(self.modules), **self.commands}

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in alphabetical order."""
        return sorted(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported now."""
        found = self.modules.get(cmd_name)
        if found is None:
            return super().get_command(ctx, cmd_name)
        module = import_module(found.module)
        if found.function:
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(epilog=module.EXAMPLE)(guarded(getattr(module, found.function)))
            command: Any = get_command(app)
        else:
            module.app.rich_markup_mode = None
            command = get_group(module.app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list in `--help`, without importing any."""
        rows = []
        for name in self.list_commands(ctx):
            if name in self.modules:
                rows.append((name, self.modules[name].help))
            else:
                command = super().get_command(ctx, name)
                rows.append((name, command.get_short_help_str(80) if command else ""))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
