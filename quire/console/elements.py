"""The small parts that pages are made of. All text goes through ``text``: never as HTML."""

from collections.abc import Iterable, Sequence
from typing import Literal

from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

Tone = Literal["", "bad", "warn", "good"]
"""What a value means for an operator."""


def block(classes: str, tag: str = "div") -> Element:
    """An element for others."""
    return ui.element(tag).classes(classes)


def say(text: str, tag: str = "span", classes: str = "") -> TextElement:
    """Text."""
    return TextElement(tag=tag, text=text).classes(classes)


def notice(text: str, advice: str = "", tone: Tone = "") -> Element:
    """What a user should know before going on."""
    box = block(f"notice {tone}").props('role="status"')
    with box:
        say(text, "b" if advice else "span")
        if advice:
            say(" " + advice)
    return box


class Facts:
    """Names and values, which change in place."""

    def __init__(self, names: Iterable[str]) -> None:
        self._values: dict[str, TextElement] = {}
        with block("facts", "dl"):
            for name in names:
                with block("fact"):
                    say(name, "dt")
                    self._values[name] = say("", "dd")

    def show(self, values: dict[str, tuple[str, Tone] | str]) -> None:
        """Show values, each with a tone if it has one."""
        for name, value in values.items():
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
        """Show a number and a few words to it."""
        large, small = self._tiles[name]
        large.text, small.text = value, note
        large.classes(replace=f"value tone-{tone}" if tone else "value")
