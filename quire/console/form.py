"""Fields that a user fills in, and the body of a request that they make."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nicegui import ui
from nicegui.elements.mixins.value_element import ValueElement


@dataclass(frozen=True, slots=True)
class Field:
    """One field.

    Attributes:
        name: its name in the request.
        label: what it is for.
        kind: how it is filled in; ``words`` are a list, written with spaces.
        hint: what may be written, or an example.
        value: what it has at first.
        choices: the choices of a ``choice``.
        is_required: whether it may not be empty.
    """

    name: str
    label: str
    kind: Literal["text", "area", "number", "switch", "choice", "password", "words"] = "text"
    hint: str = ""
    value: Any = None
    choices: Sequence[str] = ()
    is_required: bool = False


class Form:
    """The fields of a dialog."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._inputs = {field.name: (field, _input(field)) for field in fields}

    def value(self, name: str) -> Any:
        """What a field has now."""
        return self._inputs[name][1].value

    @property
    def missing(self) -> str | None:
        """The label of a field that has to be filled in."""
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
        """What was said stays said."""
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
