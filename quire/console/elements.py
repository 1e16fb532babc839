"""The small parts that pages are made of. All text goes through ``text``: never as HTML."""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement
from nicegui.elements.mixins.value_element import ValueElement

from quire.console import shown

Tone = Literal["", "bad", "warn", "good"]  # what a value means for an operator


def block(classes: str, tag: str = "div") -> Element:
    return ui.element(tag).classes(classes)


def say(text: str, tag: str = "span", classes: str = "") -> TextElement:
    return TextElement(tag=tag, text=text).classes(classes)


def button(label: str, icon: str, pressed: Callable[[], Any]) -> ui.button:
    made = ui.button(label, icon=icon, on_click=pressed).props("dense outline")
    return made.classes("act")


def notice(text: str, advice: str = "", tone: Tone = "") -> Element:
    box = block(f"notice {tone}").props('role="status"')
    with box:
        say(text, "b" if advice else "span")
        if advice:
            say(" " + advice)
    return box


class Facts:
    """Names and values, which change in place."""

    def __init__(self) -> None:
        self._values: dict[str, TextElement] = {}
        self._list = block("facts", "dl")

    def show(self, values: dict[str, tuple[str, Tone] | str]) -> None:
        for name, value in values.items():
            if name not in self._values:
                with self._list, block("fact"):
                    say(name, "dt")
                    self._values[name] = say("", "dd")
            text, tone = (value, "") if isinstance(value, str) else value
            element = self._values[name]
            element.text = text
            element.classes(replace=f"tone-{tone}" if tone else "")


class Tiles:
    """The few numbers that matter most, large, which change in place."""

    def __init__(self, names: Sequence[str]) -> None:
        self._tiles: dict[str, tuple[TextElement, TextElement]] = {}
        with block("card tiles"):
            for name in names:
                with block("tile"):
                    say(name, "div", "name")
                    self._tiles[name] = (say("", "div", "value"), say("", "div", "note"))

    def show(self, name: str, value: str, note: str = "", tone: Tone = "") -> None:
        large, small = self._tiles[name]
        large.text, small.text = value, note
        large.classes(replace=f"value tone-{tone}" if tone else "value")


async def confirm(title: str, text: str, verb: str) -> bool:
    with ui.context.client, ui.dialog() as dialog, ui.card().classes("dialog"):
        say(title, "h2")
        notice(text, tone="bad")
        with block("end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat color=grey-7")
            ui.button(verb, on_click=lambda: dialog.submit(True)).props("unelevated color=negative")
    answer = await dialog
    dialog.delete()
    return bool(answer)


@dataclass(frozen=True, slots=True)
class Field:
    name: str  # its name in the request
    label: str  # what it is for
    kind: Literal["text", "area", "number", "switch", "choice", "password", "words"] = "text"  # words: with spaces
    hint: str = ""  # what may be written, or an example
    value: Any = None  # what it has at first
    choices: Sequence[str] = ()  # the choices of a ``choice``
    is_required: bool = False  # whether it may not be empty


class Form:
    def __init__(self, fields: Sequence[Field]) -> None:
        self._inputs = {field.name: (field, _input(field)) for field in fields}

    def value(self, name: str) -> Any:
        return self._inputs[name][1].value

    @property
    def missing(self) -> str | None:
        for field, element in self._inputs.values():
            if field.is_required and element.value in (None, "", []):
                return field.label
        return None

    def body(self) -> dict[str, Any]:
        """The request's body: fields that are empty are left out."""
        return {
            name: _value(field, element.value)
            for name, (field, element) in self._inputs.items()
            if element.value not in (None, "", [])
        }

    def lock(self) -> None:
        for _, element in self._inputs.values():
            element.props("readonly disable")


def _value(field: Field, value: Any) -> Any:
    if field.kind == "number":
        return int(value) if float(value).is_integer() else float(value)
    if field.kind == "words":
        return str(value).split()
    return value


def _input(field: Field) -> ValueElement[Any]:
    element: ValueElement[Any]
    if field.kind == "switch":
        return ui.switch(field.label, value=bool(field.value))
    if field.kind == "choice":
        element = ui.select(list(field.choices), label=field.label, value=field.value)
    elif field.kind == "number":
        element = ui.number(field.label, value=field.value, min=0)
    elif field.kind == "area":
        element = ui.textarea(field.label, value=field.value or "").classes("mono")
    else:
        element = ui.input(field.label, value=field.value or "", password=field.kind == "password")
    element.props("outlined dense").style("width: 100%")
    if field.hint:
        element.props["hint"] = field.hint
    return element


_HERE = Path(__file__).parent

STYLE = (_HERE / "console.css").read_text()
HEAD = f"<script>{(_HERE / 'console.js').read_text()}</script>"

# Colours of the plots: they are legible on a light and on a dark ground.
IN, OUT, DEPTH, AGE = "#2a9d8f", "#5b7fd6", "#c58b2a", "#b26bb0"
GROUND = "#8793a3"  # axes and their labels
LINES = "rgba(128, 140, 155, 0.18)"
BAD = "#d9534f"

ICONS = {
    "overview": "speed", "topology": "account_tree", "queues": "view_list", "topics": "campaign",
    "streams": "waves", "durables": "bookmark", "groups": "groups", "connections": "lan", "schedule": "schedule",
    "transactions": "handshake", "users": "person", "rules": "rule", "tokens": "key", "policies": "tune",
    "store": "storage", "log": "article",
}  # fmt: skip


LINE = 16  # how many bytes a line of the hexadecimal view has
MOST_HEX = 4096  # how many bytes the hexadecimal view shows


class BodyView:
    def __init__(self, message: dict[str, Any]) -> None:
        data = _data(message)
        size = message.get("body_size", len(data))
        with block("card"):
            say("Body", "h2")
            if message.get("body_cut"):
                notice(f"The first {shown.size(len(data))} of {shown.size(size)} are shown.", tone="warn")
            if not data:
                say("The body is empty.", classes="mute")
                return
            forms = _forms(message, data)
            with ui.tabs().props("dense no-caps align=left inline-label") as tabs:
                for name in forms:
                    ui.tab(name)
            with ui.tab_panels(tabs, value=next(iter(forms)), animated=False).classes("body-panels"):
                for name, text in forms.items():
                    with ui.tab_panel(name):
                        wide = " wide" if name == "Hex" else ""
                        say(text, "pre", f"content mono{wide}").props('tabindex="0"')


def _data(message: dict[str, Any]) -> bytes:
    if message["body_encoding"] == "base64":
        return base64.b64decode(message["body"])
    data: bytes = message["body"].encode()
    return data


def _forms(message: dict[str, Any], data: bytes) -> dict[str, str]:
    forms = {}
    if message["body_encoding"] == "text":
        if message.get("body_kind") == "json" and (pretty := _pretty(message["body"])) is not None:
            forms["JSON"] = pretty
        forms["Text"] = shown.body(message["body"])
    forms["Hex"] = hexadecimal(data)
    return forms


def _pretty(text: str) -> str | None:
    try:
        return shown.body(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):  # cut, or deeper than anyone reads
        return None


def hexadecimal(data: bytes) -> str:
    lines = []
    for start in range(0, min(len(data), MOST_HEX), LINE):
        part = data[start : start + LINE]
        numbers = " ".join([f"{byte:02x}" for byte in part])
        text = "".join([chr(byte) if 32 <= byte < 127 else "." for byte in part])
        lines.append(f"{start:08x}  {numbers:<{LINE * 3 - 1}}  {text}")
    if len(data) > MOST_HEX:
        lines.append(f"… {shown.number(len(data) - MOST_HEX)} bytes more")
    return "\n".join(lines)
