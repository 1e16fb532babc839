"""The API's own description, written from its endpoints: OpenAPI 3.1."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from quire import __version__
from quire.http.endpoint import Endpoint

BASE = "/api/v1"
"""Where the API begins."""

_JSON, _PACKED, _FILE = "application/json", "application/msgpack", "application/octet-stream"


class ErrorDetail(msgspec.Struct, frozen=True):
    """An error: a stable code, a text, an advice, and data."""

    code: str
    text: str
    advice: str
    data: dict[str, Any]


class Error(msgspec.Struct, frozen=True):
    """The answer to a request that failed."""

    error: ErrorDetail


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The OpenAPI document of endpoints."""
    types = {type_ for row in endpoints for type_ in (row.answer, row.query, row.body) if type_ is not None} | {Error}
    ordered = sorted(types, key=lambda type_: type_.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for row in endpoints:
        paths.setdefault(BASE + row.path, {})[row.method.lower()] = _operation(row, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Quire", "version": __version__, "description": "The HTTP API of a Quire broker."},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(row: Endpoint, schema_of: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    query = msgspec.json.schema(row.query)["$defs"][row.query.__name__]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", row.path)
    ] + [
        {"name": name, "in": "query", "required": name in query["required"], "schema": schema}
        for name, schema in query["properties"].items()
    ]
    operation: dict[str, Any] = {
        "summary": row.summary,
        "description": f"Right: {row.right.text}.",
        "parameters": parameters,
        "responses": {
            str(row.status): _success(row, schema_of[row.answer]),
            "default": _content("An error.", schema_of[Error]),
        },
    }
    if row.body is not None:
        operation["requestBody"] = _content("The request.", schema_of[row.body], _PACKED if row.packed else _JSON)
    return operation


def _success(row: Endpoint, schema: dict[str, Any]) -> dict[str, Any]:
    return _content("Success.", schema, _FILE if row.answer is bytes else _JSON)


def _content(text: str, schema: dict[str, Any], media: str = _JSON) -> dict[str, Any]:
    return {"description": text, "content": {media: {"schema": schema}}}
