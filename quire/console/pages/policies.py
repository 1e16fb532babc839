"""Policies: those that are set, and which apply to one destination, and why."""

from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.broker_api import path_of
from quire.console.elements import block, say
from quire.console.page import Page
from quire.console.row_table import Column, Entry, LocalTable, text_column

KINDS = ["queue", "topic", "stream"]


async def build(page: Page) -> None:
    """Build it."""
    kind, name = page.query.get("kind", "queue"), page.query.get("name", "")
    kind = kind if kind in KINDS else "queue"
    with page.frame("Policies", "policies"):
        with block("toolbar"):
            choice = ui.select(KINDS, value=kind).props('dense outlined options-dense aria-label="Kind"')
            field = ui.input(placeholder="Which policies apply to this name?", value=name)
            field.props('dense outlined clearable aria-label="Name"').classes("quire-search")

            def look() -> None:
                page.go("/policies", kind=choice.value, name=field.value)

            field.on("keydown.enter", look)
            ui.button("Explain", icon="tune", on_click=look).props("dense outline").classes("act")
        if name:
            _show_one(await page.get(path_of("policies", kind, name)))
        else:
            _show_all(await page.get("/policies"))


def _show_one(answer: dict[str, Any]) -> None:
    say(f"What applies to {shown.text(answer['destination'], 100)}, the most specific first", "h2", "bare")
    entries = [
        text_column("destination", "Policy for"),
        text_column("origin", "From"),
        Column("applies", "Decides", lambda entry: _keys(entry["applies"]), is_text=True),
        Column(
            "overridden", "Overridden by a more specific one", lambda entry: _keys(entry["overridden"]), is_text=True
        ),
    ]
    LocalTable(entries, "No policy names it: the defaults hold.", "destination").show(answer["entries"])
    say("The values", "h2", "bare")
    LocalTable(
        [
            *_value_columns(),
            Column("text", "Meaning", lambda entry: shown.text(entry["text"]), is_text=True, wraps=True),
        ],
        "None.",
        "key",
    ).show(answer["values"])


def _show_all(answer: dict[str, Any]) -> None:
    say("Policies", "h2", "bare")
    entries = [
        text_column("destination", "Policy for"),
        text_column("origin", "From"),
        Column("values", "Sets", lambda entry: _settings(entry["values"]), is_text=True),
    ]
    LocalTable(entries, "No policy is set: the base holds for all destinations.", "destination").show(answer["entries"])
    say("The base, which holds where no policy says otherwise", "h2", "bare")
    LocalTable(_value_columns(), "None.", "key").show(answer["base"])


def _value_columns() -> list[Column]:
    return [
        text_column("key", "Setting"),
        Column("value", "Value", lambda entry: shown.text(entry["value"]), is_text=True),
        text_column("origin", "From"),
    ]


def _keys(keys: list[str]) -> str:
    return shown.text(", ".join(keys) or shown.UNKNOWN)


def _settings(values: Entry) -> str:
    return shown.text(", ".join([f"{key} = {value}" for key, value in values.items()]))
