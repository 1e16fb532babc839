"""A noun of the command line: what the verbs of all kinds of things have in common, most of them one request each."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec

import click

from quire.cli.api import Api, broker_verb, numbered_pages, pages, path
from quire.cli.output import Column, Output, columns, columns_of, confirm, messages, output_option
from quire.resources import Consumer, HeldProducer
from quire.units import parse_duration

CONSUMERS, HELD = columns_of(Consumer), columns_of(HeldProducer)
MESSAGE_COLUMNS = columns(
    "sequence", "id", "size", "timestamp:Sent", "priority", "redelivered", "in_flight", "body::60"
)

BROWSE_PAGE = 500  # how many messages one call asks for

YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")

P = ParamSpec("P")


def parsed(parse: Callable[[str], Any], wrong: str = "") -> Callable[..., Any]:
    """A click callback: what ``parse`` reads from a text; ``wrong`` says what is wrong if its errors do not."""

    def callback(_context: click.Context, _option: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(f"{value!r} {wrong}" if wrong else str(error)) from error

    return callback


DURATION = parsed(parse_duration)

Tables = Mapping[str, tuple[str, Sequence[Column]]]
"""The heading and the columns of each list that is in a thing, by its key."""

Param = Callable[[Any], Any]  # what ``click.argument`` and ``click.option`` return.


def choice_options(verb: Callable[P, None]) -> Callable[..., None]:
    """The options that say which messages of a queue; the verb gets them as ``choice``, as the API takes them."""

    @click.option("--selector", metavar="SELECTOR", help="Only messages that match this JMS selector.")
    @click.option("--id", "ids", multiple=True, metavar="ID", help="Only the message with this id; may be repeated.")
    @click.option("--limit", type=click.IntRange(1), help="The maximum number of messages, oldest first.")
    @functools.wraps(verb)
    def with_choice(*args: P.args, **kwargs: P.kwargs) -> None:
        choice: dict[str, Any] = {name: kwargs.pop(name) for name in ("selector", "ids", "limit")}
        kwargs["choice"] = {name: value for name, value in choice.items() if value}
        verb(*args, **kwargs)

    return with_choice


class Resource(click.Group):
    """The verbs of one kind of thing; ``place`` makes the path of one from its arguments, ``title`` its name."""

    def __init__(
        self, name: str, help: str, plural: str, *arguments: str, place: Callable[..., str] | None = None,
        title: str = "",
    ) -> None:  # fmt: skip
        super().__init__(name, help=help)
        output_option(self)
        self._plural = plural
        self._names = arguments
        self._place = place or (lambda *parts: path(plural, *parts))
        self._title = title or f"{{{arguments[0]}}}"

    def ls(
        self, help: str, shown: Sequence[Column], key: str = "", *, paged: bool = False, whole: bool = False
    ) -> None:
        """Add the verb that lists all; ``key`` is what they are called in the answer, if not as in the path.

        Args:
            whole: whether the list comes in one piece.
        """

        def verb(api: Api, output: Output, /) -> None:
            where, name = path(self._plural), key or self._plural
            if whole:
                output.rows(api.call("GET", where)[name], shown)
            else:
                output.rows((pages if paged else numbered_pages)(api, where, name), shown)

        self.add("ls", help, verb, named=False)

    def show(self, help: str, tables: Tables, *rest: str) -> None:

        def verb(api: Api, output: Output, /, **given: str) -> None:
            output.details(api.call("GET", self._path(given, rest)), tables)

        self.add(rest[-1] if rest else "show", help, verb)

    def rows(
        self, key: str, help: str, shown: Sequence[Column], *rest: str, verb: str = "", paged: bool = False,
        query: Sequence[Param] = (),
    ) -> None:  # fmt: skip
        """Add a verb that lists what one has under a key, in what the API tells of it or below its path."""

        def lists(api: Api, output: Output, /, **given: Any) -> None:
            where = self._path(given, rest)
            asked = {key: value for key, value in given.items() if key not in self._names}
            output.rows(pages(api, where, key) if paged else api.call("GET", where, **asked)[key], shown)

        self.add(verb or key, help, lists, query)

    def act(
        self, name: str, method: str, help: str, done: str | Callable[[dict[str, Any]], str], *rest: str,
        ask: str = "", force: str = "", params: Sequence[Param] = (), body: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Add a verb that is one request; ``ask`` is a question before it, ``force`` the help of ``--force``."""
        options = [click.option("--force", is_flag=True, help=force)] if force else []
        options += [YES] if ask else []

        def verb(api: Api, output: Output, /, **given: Any) -> None:
            it = self._title.format_map(given)
            if ask:
                confirm(ask.format_map({**given, "it": it}), given["yes"])
            content = {key: given[key] for key in body} if body else None
            forced = "true" if given.get("force") else None
            result = api.call(method, self._path(given, rest), content, force=forced)
            told = result | given | {"it": it}
            output.done(done.format_map(told) if isinstance(done, str) else done(told), result)

        self.add(name, help, verb, [*params, *options])

    def purge(self, help: str) -> None:

        def verb(api: Api, output: Output, /, choice: dict[str, Any], yes: bool, **given: str) -> None:
            it = self._title.format_map(given)
            confirm(f"Remove {'these' if choice else 'all'} messages of {it}?", yes)
            result = api.call("POST", self._path(given, ["purge"]), choice)
            output.done(f"removed {messages(result['removed'])} from {it}", result)

        self.add("purge", help, verb, [choice_options, YES])

    def browse(self, help: str) -> None:
        limit = click.option(
            "--limit",
            type=click.IntRange(0),
            default=100,
            show_default=True,
            help="The maximum number of messages; 0 for all.",
        )
        selector = click.option("--selector", metavar="SELECTOR", help="Only messages that match this JMS selector.")

        def verb(api: Api, output: Output, /, limit: int, selector: str | None, **given: str) -> None:
            where = self._path(given, ["messages"])
            output.rows(_browsed(api, output, where, given["name"], limit, selector), MESSAGE_COLUMNS)

        self.add("browse", help, verb, [limit, selector])

    def _path(self, given: Mapping[str, Any], rest: Sequence[str]) -> str:
        return self._place(*[given[name] for name in self._names], *[part.format_map(given) for part in rest])

    def add(
        self, name: str, help: str, verb: Callable[..., None], params: Sequence[Param] = (), *, named: bool = True
    ) -> None:
        command: Any = broker_verb(verb)
        for param in reversed([*[click.argument(each) for each in self._names if named], *params]):
            command = param(command)
        self.command(name, help=help)(command)


def _browsed(
    api: Api, output: Output, where: str, name: str, limit: int, selector: str | None
) -> Iterator[dict[str, Any]]:
    """The messages at a path, page by page: so many at the most, or with a limit of 0 all."""
    shown = 0
    after: str | None = None
    while True:
        wanted = min(BROWSE_PAGE, limit - shown) if limit else BROWSE_PAGE
        page = api.call("GET", where, limit=wanted, after=after, selector=selector)
        yield from page["messages"]
        shown += len(page["messages"])
        after = page["next"]
        if after is None:
            return
        if limit and shown >= limit:
            output.note(f"{name} has more messages: --limit 0 shows them all")
            return
