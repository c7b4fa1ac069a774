"""The root of the command tree. A command's module is imported when the command is called, so that
`kstore --help` and each command start without the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from kstore.cli.failure import guarded

__all__ = ["CommandModule", "LazyGroup"]

# Options that Kafka's own tools and kcat have and our commands do not: what to type instead.
_ACTIONS = {"create", "list", "describe", "delete", "alter", "add", "remove"}
"""kafka-topics and its siblings take the action as an option."""

_OF_COMMAND = {
    ("consume", "--from-beginning"): "records are read from the beginning by default",
    ("consume", "--max-messages"): "use --count",
    ("consume", "-n"): "use --count",
    ("consume", "--timeout-ms"): "--exit stops at the end of the topic",
    ("consume", "-t"): "the topic is an argument: kstore consume orders",
    ("consume", "-C"): "the topic is an argument: kstore consume orders",
    ("produce", "-t"): "the topic is an argument: kstore produce orders",
    ("produce", "-P"): "the topic is an argument: kstore produce orders",
    ("group", "--reset-offsets"): "use kstore group reset",
}

_OF_ANY = {
    "--bootstrap-servers": "use --bootstrap-server",
    "--broker-list": "use --bootstrap-server",
    "--zookeeper": "use --bootstrap-server",
    "--command-config": "use --profile, or -X KEY=VALUE",
    "--consumer.config": "use --profile, or -X KEY=VALUE",
    "--producer.config": "use --profile, or -X KEY=VALUE",
    "--consumer-property": "use -X KEY=VALUE",
    "--producer-property": "use -X KEY=VALUE",
    "--property": "use --format to choose what is printed, and --key-separator to read keys",
    "--formatter-property": "use --format to choose what is printed",
    "--reader-property": "use --key-separator to read keys",
    "--topic": "the topic is an argument",
    "--group": "the group is an argument",
}


class CommandModule(NamedTuple):
    """A command's module, and its description in `kstore --help`.

    The module has `app`, a Typer, or the named function and EXAMPLE.
    """

    module: str
    help: str
    function: str = ""


class LazyGroup(TyperGroup):
    """A group with the commands of `modules`, in addition to the registered ones."""

    modules: ClassVar[dict[str, CommandModule]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # The names are needed to suggest the nearest one for a mistyped name.
        self.commands: dict[str, Any] = {**dict.fromkeys(self.modules), **self.commands}

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in alphabetical order."""
        return sorted(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command; imports its module."""
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

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an option of another tool gets a hint."""
        try:
            return super().invoke(ctx)
        except Exception as problem:
            # NoSuchOption of the click that typer has inside, which has no public name.
            error: Any = problem
            option, where = getattr(error, "option_name", None), getattr(error, "ctx", None)
            if option and where is not None:
                words = where.command_path.removeprefix(ctx.command_path).strip()
                if hint := _instead_of(words, option):
                    error.message = f"No such option: {option}; {hint}"
                    error.possibilities = None
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list in `--help`; imports no command."""
        rows = []
        for name in self.list_commands(ctx):
            if name in self.modules:
                rows.append((name, self.modules[name].help))
            else:
                command = super().get_command(ctx, name)
                rows.append((name, command.get_short_help_str(80) if command else ""))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _instead_of(words: str, option: str) -> str | None:
    """What to type instead of an option that a command (``topic create``) does not have; None for
    an option that no other tool has either.
    """
    name = option.lstrip("-")
    if " " not in words and name in _ACTIONS and option.startswith("--"):
        return f"use kstore {words} {name}"
    return _OF_COMMAND.get((words, option)) or _OF_ANY.get(option)
