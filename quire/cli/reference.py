"""Writes the reference pages from the code: ``python -m quire.cli.reference [DIRECTORY]``.

A test holds ``docs/reference`` current; after a change to a setting, a verb or an error, run this.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from quire.cli.main import main as program
from quire.client.remote_error import error_classes
from quire.errors import ERRORS
from quire.settings import KEYS
from quire.spark.options import OPTIONS, Use

WIDTH = 100
"""How wide the help texts are printed, in characters."""


def pages() -> dict[str, str]:
    """The text of each page, by file name."""
    return {"settings.md": settings_page(), "cli.md": cli_page(), "errors.md": errors_page(), "spark.md": spark_page()}


def spark_page() -> str:
    """The page of the options of the data source for Spark."""
    lines = [
        "# Options of the data source for Spark",
        "",
        '`format("quire")` takes these. Case does not count. What is unknown, cannot be read or is not for the use at',
        "hand is an error that names it.",
        "",
        "| option | for | default | allowed | meaning |",
        "|---|---|---|---|---|",
    ]
    for option in OPTIONS.values():
        uses = "all" if len(option.uses) == len(Use) else ", ".join(option.uses)
        default = "" if option.default is None else f"`{option.kind.write(option.default).strip(chr(34))}`"
        lines.append(f"| `{option.name}` | {uses} | {default} | {option.kind.allowed} | {option.text} |")
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """The page of the settings."""
    lines = [
        "# Settings",
        "",
        "A flag stands over the environment, the environment over the file, the file over the default.",
        "The file is TOML: `quire config init` writes one with all of this in it, `quire broker start --config FILE`",
        "reads it. `quire config check FILE` reads it without starting. `quire config explain --config FILE` says of",
        "every value where it comes from, and `quire config explain DESTINATION --config FILE` of every value of a",
        "destination's policy.",
        "",
        "An environment variable is named after section and key, with two underscores between them:",
        "`QUIRE_STOMP__ADDRESS` sets `stomp.address`. What is unknown is an error, never passed over.",
        "",
        "Sizes are written `1024`, `64MB` (powers of 1000) or `64MiB` (powers of 1024), durations `500ms`, `30s`,",
        "`5m`, `1h` or `7d`; a number alone means bytes or seconds. Paths are relative to the directory of the start.",
        "",
        "While there are no users, an address that is not loopback is refused unless `insecure` is true.",
    ]
    section = None
    for key in KEYS.values():
        head, _, name = key.name.rpartition(".")
        if head != section:
            section = head
            lines += ["", f"## {f'[{head}]' if head else 'Top of the file'}", ""]
            lines += ["| key | default | allowed | meaning |", "|---|---|---|---|"]
        lines.append(f"| `{name}` | `{key.kind.write(key.default)}` | {key.kind.allowed} | {key.text} |")
    lines += [
        "",
        "## [[policies]]",
        "",
        "`[policy]` holds for every destination. An entry `[[policies]]` says what is different for some:",
        "",
        "| key | allowed | meaning |",
        "|---|---|---|",
        "| `destination` | a pattern, with `queue://` or `topic://` before it if one kind is meant | Which ones. |",
        "| any key of `[policy]` | as there | Its value for them. |",
        "",
        "Several entries may match a destination; [policies](../policies.md) says which one counts.",
        "",
        "## [[composites]]",
        "",
        "What is sent to a composite destination is forwarded to others. An entry for each:",
        "",
        "| key | default | allowed | meaning |",
        "|---|---|---|---|",
        "| `queue` or `topic` | | the name of a queue or of a topic | Where producers send. |",
        "| `forward_to` | | a list of destinations, each as text or as `{destination = ..., selector = ...}` |"
        " Where copies go: all messages, or those that the selector matches. |",
        "| `forward_only` | `true` | true or false | Whether nothing stays in the composite destination itself. |",
    ]
    return "\n".join(lines) + "\n"


def cli_page() -> str:
    """The page of the command line."""
    lines = [
        "# Command line",
        "",
        "A command is a noun and a verb. `send`, `receive`, `broker status`, `broker stop` and all verbs of `queue`,",
        "`topic`, `durable`, `stream`, `group`, `schedule` and `xa` ask a running broker over its HTTP API: `--url`",
        "says where, or `--data` names the data directory of a broker on this machine, or `QUIRE_URL` is set; else it",
        "is `http://127.0.0.1:8161`.",
        "",
        "`--output json`, `ndjson` or `csv` may stand anywhere and prints for programs. Errors go to standard error:",
        "what went wrong, what to do, and a [code](errors.md). Verbs that destroy ask first on a terminal, unless",
        "`--yes` is given.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        "| 0 | done |",
        "| 1 | failure |",
        "| 2 | usage: an argument or a setting is wrong |",
        "| 3 | not found |",
        "| 4 | refused |",
        "| 5 | no broker answers |",
    ]
    for context in _contexts(click.Context(program, info_name="quire", terminal_width=WIDTH, max_content_width=WIDTH)):
        lines += ["", f"## {context.command_path}", "", "```text", context.get_help(), "```"]
    return "\n".join(lines) + "\n"


def errors_page() -> str:
    """The page of the errors."""
    texts = {error_class.code: inspect.getdoc(error_class) or "" for error_class in reversed(error_classes())}
    lines = [
        "# Errors",
        "",
        "Every error has a stable code. STOMP has it in the header `code` of the ERROR frame, the HTTP API in",
        "`error.code`, the command line in brackets. Retriable means: the same call may succeed later, unchanged.",
    ]
    for code, entry in ERRORS.items():
        retriable = "retriable" if entry.retriable else "not retriable"
        meaning = "A defect of the broker." if code == "internal-error" else texts[code].partition("\n\n")[0]
        lines += ["", f"## {code}", "", meaning.replace("\n", " "), "", f"What to do: {entry.advice}", ""]
        lines.append(f"HTTP status {entry.http}, exit code {entry.exit}, {retriable}.")
    return "\n".join(lines) + "\n"


def _contexts(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            assert command is not None
            yield from _contexts(click.Context(command, context, info_name=name))


if __name__ == "__main__":
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference")
    directory.mkdir(parents=True, exist_ok=True)
    for file, text in pages().items():
        (directory / file).write_text(text, encoding="utf-8")
        print(directory / file)
