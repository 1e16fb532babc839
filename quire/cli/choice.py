"""What the verbs about many messages of a queue share: the options that choose among them."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

import click

P = ParamSpec("P")


def choice_options(verb: Callable[P, None]) -> Callable[..., None]:
    """The options that say which messages of a queue; the verb gets them as ``choice``, as the API takes them."""

    @click.option("--selector", metavar="SELECTOR", help="Only messages that this JMS selector matches.")
    @click.option("--id", "ids", multiple=True, metavar="ID", help="Only the message with this id; may be repeated.")
    @click.option("--limit", type=click.IntRange(1), help="How many at the most, oldest first.")
    @functools.wraps(verb)
    def with_choice(*args: P.args, **kwargs: P.kwargs) -> None:
        choice: dict[str, Any] = {name: kwargs.pop(name) for name in ("selector", "ids", "limit")}
        kwargs["choice"] = {name: value for name, value in choice.items() if value}
        verb(*args, **kwargs)

    return with_choice
