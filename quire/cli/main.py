"""The program ``quire``: nouns, each with its verbs."""

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

import click

from quire import __version__
from quire.cli.output import FORMATS, Output, output_option
from quire.errors import QuireError


class Noun(NamedTuple):
    """Where a command is and what it is for: known without importing it."""

    module: str  # the module that has it, under the command's own name
    help: str  # its line in the program's help


NOUNS = {
    "broker": Noun("quire.cli.broker", "Start, inspect and stop a broker."),
    "check": Noun("quire.cli.check", "Check a broker, for Nagios and for probes of Kubernetes."),
    "cluster": Noun("quire.cli.broker", "Run many brokers as one; move shards between them."),
    "config": Noun("quire.cli.config", "Write, check and explain settings."),
    "console": Noun("quire.cli.console", "Run the web console in the foreground."),
    "doctor": Noun("quire.cli.doctor", "Examine settings, machine and broker, and say what to mend."),
    "durable": Noun("quire.cli.nouns", "List, create, delete, purge durable subscriptions."),
    "group": Noun("quire.cli.nouns", "List consumer groups of streams, show their lag, reset them."),
    "perf": Noun("quire.cli.perf", "Measure a broker."),
    "pipeline": Noun("quire.cli.pipeline", "Run pipelines over messages in bulk, on Spark."),
    "producer": Noun("quire.cli.nouns", "List and forget producers that number their sends."),
    "queue": Noun("quire.cli.nouns", "List, create, delete, browse, purge, move queues and their messages."),
    "receive": Noun("quire.cli.messages", "Receive messages from a queue, a topic or a stream."),
    "rule": Noun("quire.cli.nouns", "List, add, change, remove, explain access rules."),
    "schedule": Noun("quire.cli.nouns", "List and cancel scheduled messages."),
    "send": Noun("quire.cli.messages", "Send a message to a queue, a topic or a stream."),
    "store": Noun("quire.cli.store", "Verify, repair, migrate, back up a store."),
    "stream": Noun("quire.cli.nouns", "List, create, delete, read streams; find and pin messages."),
    "tls": Noun("quire.cli.tls", "Make and show certificates."),
    "token": Noun("quire.cli.nouns", "List, create, revoke tokens."),
    "top": Noun("quire.cli.top", "Show a running broker's rates, limits and what needs attention, live."),
    "topic": Noun("quire.cli.nouns", "List, create, delete topics; list their subscriptions."),
    "user": Noun("quire.cli.nouns", "List, add, change, remove users."),
    "whoami": Noun("quire.cli.nouns", "Show which user you are to the broker, by which proof, and your roles."),
    "xa": Noun("quire.cli.nouns", "List prepared XA transactions, commit them or roll them back."),
}


_WORDS = {
    "consume": "receive", "destinations": "queue ls", "get": "receive", "list": "queue ls", "publish": "send",
    "put": "send", "start": "broker start", "status": "broker status", "stop": "broker stop",
    "subscriptions": "durable ls",
}  # fmt: skip
"""What other brokers' command lines call things, and what to write here."""

_OPTIONS = {f"--{name}": f"--output {name}" for name in FORMATS} | {"--format": "--output", "-o": "--output"}
"""What other programs call the format of results."""


@contextmanager
def _options_named() -> Iterator[None]:
    try:
        yield
    except click.NoSuchOption as error:
        if meant := _OPTIONS.get(error.option_name):
            text = f"There is no option {error.option_name!r}. Write: {meant}"
            raise click.NoSuchOption(error.option_name, text, ctx=error.ctx) from error
        raise


class LazyGroup(click.Group):
    """Commands that are imported only when they are used, not when they are listed."""

    nouns: ClassVar[Mapping[str, Noun]]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.nouns)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(self.nouns[cmd_name].module)
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.nouns[name].help) for name in self.list_commands(ctx)])


class Program(LazyGroup):
    """The top of the command line; it turns errors into exit codes."""

    nouns = NOUNS

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, noun in NOUNS.items() if importlib.util.find_spec(noun.module)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; where it names none, the one that is meant is said."""
        name, noun = args[0], args[0].removesuffix("s")
        meant = _WORDS.get(name)
        if noun != name and "ls" in getattr(self.get_command(ctx, noun), "commands", {}):
            meant = f"{noun} ls"
        if meant and name not in NOUNS:
            raise click.UsageError(f"There is no command {name!r}. Write: quire {meant}", ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _options_named():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            with _options_named():
                return super().invoke(ctx)
        except QuireError as error:
            ctx.ensure_object(Output).error(error)
            ctx.exit(error.entry.exit)


@click.group(cls=Program)
@click.version_option(__version__, message="quire %(version)s")
@output_option
def main() -> None:
    """Quire, a persistent message broker.

    Exit codes: 0 done, 1 failure, 2 usage, 3 not found, 4 refused, 5 unreachable, 6 nothing received.
    """


if __name__ == "__main__":
    main()
