"""Writes the reference pages from the code: ``python -m quire.cli.reference [DIRECTORY]``. A test compares them."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from quire import resources
from quire.cli.main import main as program
from quire.client.options import PREFIX as CONSUMER_PREFIX
from quire.client.options import ConnectionOptions, ConsumerOptions, FailoverOptions, TransportOptions
from quire.client.remote import error_classes
from quire.errors import ERRORS
from quire.options import options_of
from quire.resources import Field, Status
from quire.settings import KEYS
from quire.spark.options import OPTIONS, Use

WIDTH = 100  # how wide the help texts are printed, in characters

SPARK = """\
# Options of the data source for Spark

These are the options of `format("quire")`. Their names have no case. An option that is unknown, not valid or not for
the use is an error.

| option | for | default | allowed | meaning |
|---|---|---|---|---|
"""
CLIENT = """\
# Options of the client

The client reads the options of ActiveMQ's Java client in the URL of a broker. Times are in milliseconds. An option that
is unknown is an error that names the nearest ones. [The client](../client.md) shows how they are used.
"""
URL_OPTIONS = {
    "Of the connection": (ConnectionOptions, "jms."),
    "Of `failover:`": (FailoverOptions, ""),
    "Of the transport to a broker; with `nested.` before them, to every broker of `failover:`": (TransportOptions, ""),
    "In the name of a destination": (ConsumerOptions, CONSUMER_PREFIX),
}
SETTINGS = """\
# Settings

A flag overrides the environment, the environment overrides the file, and the file overrides the default. The file is
TOML: `quire config init` writes one with all settings, and `quire broker start --config FILE` reads it.
`quire config check FILE` checks it. `quire config explain --config FILE` shows the origin of every value, and
`quire config explain DESTINATION --config FILE` the policy of a destination.

The name of an environment variable has the section and the key, with two underscores between them:
`QUIRE_STOMP__ADDRESS` sets `stomp.address`. An unknown setting is an error.

Sizes are written `1024`, `64MB` (powers of 1000) or `64MiB` (powers of 1024), durations `500ms`, `30s`,
`5m`, `1h` or `7d`; a number alone means bytes or seconds. Paths are relative to the working directory of the broker.

While there are no users, the broker refuses an address that is not loopback, unless `insecure` is true.
"""
ENTRIES = """
## [[policies]]

`[policy]` applies to every destination. An entry `[[policies]]` overrides it for some:

| key | allowed | meaning |
|---|---|---|
| `destination` | a pattern, with `queue://` or `topic://` before it for one kind only | The destinations. |
| any key of `[policy]` | as in `[policy]` | The value for these destinations. |

Several entries may match a destination; [policies](../policies.md) tells which one applies.

## [[composites]]

The broker forwards what is sent to a composite destination to other destinations. Each has an entry:

| key | default | allowed | meaning |
|---|---|---|---|
| `queue` or `topic` | | the name of a queue or of a topic | Where producers send. |
| `forward_to` | | a list of destinations, each as text or as `{destination = ..., selector = ...}` | Where the broker\
 forwards to: all messages, or those that match the selector. |
| `forward_only` | `true` | true or false | Whether the composite destination itself keeps no message. |

## [[users]]

Users of the settings file; [security](../security.md) tells what they may do.

| key | default | allowed | meaning |
|---|---|---|---|
| `name` | | a name without blanks, `,`, `:`, `*` and a `$` in front | The login. |
| `password_hash` | none | what `quire user hash` prints | The hash of the password. |
| `roles` | none | a list of names | The roles; `administrator`, `operator` and `monitor` have a meaning of their own. |
| `certificates` | none | a list of texts | The subjects of client certificates that prove that one is this user. |
| `disabled` | `false` | true or false | Whether the broker refuses the user. |

## [[rules]]

Access rules of the settings file:

| key | allowed | meaning |
|---|---|---|
| `subject` | `user:NAME`, `role:NAME` or `*` | Whom it is about. |
| `allow` or `deny` | a list of `read`, `write`, `create`, `manage` | What it allows, or denies. |
| `destination` | a pattern, with `queue://`, `topic://` or `stream://` before it for one kind only | Which ones. |
"""
CLI = """\
# Command line

A command is a noun and a verb. `send`, `receive`, `broker status`, `broker stop` and all verbs of `queue`,
`topic`, `durable`, `stream`, `group`, `producer`, `schedule`, `xa`, `user` (but for `hash`), `rule` and `token` use the
HTTP API of a running broker. Its address is `--url`, or that of the broker with the data directory `--data`, or
`QUIRE_URL`, or by default `http://127.0.0.1:8161`. If the broker has users, [log in](../security.md): with `--user` and
`--password-file`, or `--token-file`, or the variables `QUIRE_USER`, `QUIRE_PASSWORD_FILE` and `QUIRE_TOKEN`. On the
broker's machine its data directory is enough.

`--output json`, `ndjson` or `csv`, at any place, prints for programs. Errors go to standard error: what went wrong,
what to do, and a [code](errors.md). On a terminal, verbs that remove something ask for confirmation, unless `--yes`
is given.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failure |
| 2 | usage: an argument or a setting is wrong |
| 3 | not found |
| 4 | refused |
| 5 | no broker answers |
"""
ERROR_CODES = """\
# Errors

Every error has a stable code. STOMP has it in the header `code` of the ERROR frame, the HTTP API in
`error.code`, the command line in brackets. Retriable means: the same call may succeed later, unchanged.
"""


RESOURCES = """\
# Resources

What the broker tells of its queues, topics, streams and all else: the fields of the answers of the [HTTP API](http.md),
by which words its lists are sorted, and which fields are [metrics](metrics.md). The command line and the console show
the same fields. Times are in milliseconds since 1970.
"""


def pages() -> dict[str, str]:
    texts = {
        "settings.md": settings_page(),
        "cli.md": cli_page(),
        "errors.md": errors_page(),
        "spark.md": spark_page(),
        "client.md": client_page(),
        "resources.md": resources_page(),
    }
    return {file: "".join(parts) for file, parts in texts.items()}


def spark_page() -> Iterator[str]:
    yield SPARK
    for option in OPTIONS.values():
        uses = "all" if len(option.uses) == len(Use) else ", ".join(option.uses)
        default = "" if option.default is None else f"`{option.kind.write(option.default).strip(chr(34))}`"
        yield f"| `{option.name}` | {uses} | {default} | {option.kind.allowed} | {option.text} |\n"


def client_page() -> Iterator[str]:
    """The page of the options in URLs of the client."""
    yield CLIENT
    for title, (described, prefix) in URL_OPTIONS.items():
        yield f"\n## {title}\n\n| option | default | allowed | meaning |\n|---|---|---|---|\n"
        for option in options_of(described):
            default = option.kind.write(option.default)
            yield f"| `{prefix}{option.name}` | `{default}` | {option.kind.allowed} | {option.text} |\n"


def settings_page() -> Iterator[str]:
    yield SETTINGS
    section = None
    for key in KEYS.values():
        head, _, name = key.name.rpartition(".")
        if head != section:
            section = head
            yield f"\n## {f'[{head}]' if head else 'Top of the file'}\n\n"
            yield "| key | default | allowed | meaning |\n|---|---|---|---|\n"
        yield f"| `{name}` | `{key.kind.write(key.default)}` | {key.kind.allowed} | {key.text} |\n"
    yield ENTRIES


def resources_page() -> Iterator[str]:
    yield RESOURCES
    for kind in vars(resources).values():
        if isinstance(kind, type) and issubclass(kind, Status) and kind is not Status:
            head, _, rest = inspect.cleandoc(kind.__doc__ or "").replace("``", "`").partition(".")
            yield f"\n## {head}\n\n" + (f"{rest.strip()}\n\n" if rest.strip() else "")
            known = resources.fields(kind).values()
            if words := [f"`{field.sort}`" for field in known if field.sort]:
                yield f"Lists are sorted by {', '.join(words)}, or the name.\n\n"
            yield "| field | meaning | metric |\n|---|---|---|\n"
            for field in known:
                text = field.text or inspect.getdoc(field.inside) or ""
                yield f"| `{field.name}` | {text.replace('``', '`')} | {_metric(field)} |\n"


def _metric(field: Field) -> str:
    """The metric of a field, with what its name does not say."""
    metric = field.shown.metric
    if metric is None:
        return ""
    labels = "".join(f", `{name}` = `{value}`" for name, value in metric.labels.items())
    return f"{metric.kind} `{metric.name}`{labels}"


def cli_page() -> Iterator[str]:
    yield CLI
    for context in _contexts(click.Context(program, info_name="quire", terminal_width=WIDTH, max_content_width=WIDTH)):
        yield f"\n## {context.command_path}\n\n```text\n{context.get_help()}\n```\n"


def errors_page() -> Iterator[str]:
    yield ERROR_CODES
    texts = {error_class.code: inspect.getdoc(error_class) or "" for error_class in reversed(error_classes())}
    for code, entry in ERRORS.items():
        retriable = "retriable" if entry.retriable else "not retriable"
        meaning = "A defect of the broker." if code == "internal-error" else texts[code].partition("\n\n")[0]
        yield f"\n## {code}\n\n{meaning.replace(chr(10), ' ')}\n\nWhat to do: {entry.advice}\n\n"
        yield f"HTTP status {entry.http}, exit code {entry.exit}, {retriable}; over OpenWire `{entry.openwire}`.\n"


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
