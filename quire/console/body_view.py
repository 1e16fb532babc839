"""The body of a message: as text, as JSON, as bytes. What the broker has cut is said to be cut."""

import base64
import json
from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.elements import block, notice, say

LINE = 16
"""How many bytes a line of the hexadecimal view has."""

MOST_HEX = 4096
"""How many bytes the hexadecimal view shows."""


class BodyView:
    """Shows a body in the forms that it has."""

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
    """The forms, the most telling one first."""
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
    """Bytes as lines of offset, numbers and characters."""
    lines = []
    for start in range(0, min(len(data), MOST_HEX), LINE):
        part = data[start : start + LINE]
        numbers = " ".join([f"{byte:02x}" for byte in part])
        text = "".join([chr(byte) if 32 <= byte < 127 else "." for byte in part])
        lines.append(f"{start:08x}  {numbers:<{LINE * 3 - 1}}  {text}")
    if len(data) > MOST_HEX:
        lines.append(f"… {shown.number(len(data) - MOST_HEX)} bytes more")
    return "\n".join(lines)
