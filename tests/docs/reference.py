"""Writes what reference pages have from the code: ``python -m tests.docs.reference``. A test compares them.

It stands in each page between two comments; what is before and behind them is written by hand.
"""

import inspect
from collections.abc import Callable, Iterator
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

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
BEGIN, END = "<!-- python -m tests.docs.reference writes this part -->\n", "\n<!-- end of the part -->\n"

WIDTH = 100  # how wide the help texts are printed, in characters

URL_OPTIONS = {
    "Of the connection": (ConnectionOptions, "jms."),
    "Of `failover:`": (FailoverOptions, ""),
    "Of the transport to a broker; with `nested.` before them, to every broker of `failover:`": (TransportOptions, ""),
    "In the name of a destination": (ConsumerOptions, CONSUMER_PREFIX),
}


def current(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def written(name: str) -> str:
    """The page as it should be."""
    head, _, rest = current(name).partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{''.join(PAGES[name]())}{END}{tail}"


def spark_page() -> Iterator[str]:
    yield "\n| option | for | default | allowed | meaning |\n|---|---|---|---|---|\n"
    for option in OPTIONS.values():
        uses = "all" if len(option.uses) == len(Use) else ", ".join(option.uses)
        default = "" if option.default is None else f"`{option.kind.write(option.default).strip(chr(34))}`"
        yield f"| `{option.name}` | {uses} | {default} | {option.kind.allowed} | {option.text} |\n"


def client_page() -> Iterator[str]:
    """The page of the options in URLs of the client."""
    for title, (described, prefix) in URL_OPTIONS.items():
        yield f"\n## {title}\n\n| option | default | allowed | meaning |\n|---|---|---|---|\n"
        for option in options_of(described):
            default = option.kind.write(option.default)
            yield f"| `{prefix}{option.name}` | `{default}` | {option.kind.allowed} | {option.text} |\n"


def settings_page() -> Iterator[str]:
    section = None
    for key in KEYS.values():
        head, _, name = key.name.rpartition(".")
        if head != section:
            section = head
            yield f"\n## {f'[{head}]' if head else 'Top of the file'}\n\n"
            yield "| key | default | allowed | meaning |\n|---|---|---|---|\n"
        yield f"| `{name}` | `{key.kind.write(key.default)}` | {key.kind.allowed} | {key.text} |\n"


def resources_page() -> Iterator[str]:
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
    for context in _contexts(click.Context(program, info_name="quire", terminal_width=WIDTH, max_content_width=WIDTH)):
        yield f"\n## {context.command_path}\n\n```text\n{context.get_help()}\n```\n"


def errors_page() -> Iterator[str]:
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


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "settings.md": settings_page, "cli.md": cli_page, "errors.md": errors_page, "spark.md": spark_page,
    "client.md": client_page, "resources.md": resources_page,
}  # fmt: skip

if __name__ == "__main__":
    for name in PAGES:
        (REFERENCE / name).write_text(written(name), encoding="utf-8")
