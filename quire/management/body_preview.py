"""A body as an answer shows it: as text or base64, cut if it is long."""

from typing import Literal, NamedTuple

import msgspec

from quire.broker.queues.browsing import text_of

BodyKind = Literal["empty", "text", "json", "xml", "binary"]

PREVIEW = 64 * 1024
"""How many bytes of a body an answer shows at the most."""


class BodyPreview(NamedTuple):
    """What of a body is shown."""

    text: str  # as text, or as base64 if it is not UTF-8
    encoding: Literal["text", "base64"]  # which of the two
    kind: BodyKind  # what it seems to be
    size: int  # the size of the whole body in bytes
    is_cut: bool  # whether it is longer than what is shown


def preview(body: bytes, most: int = PREVIEW, content_type: str = "") -> BodyPreview:
    """The first bytes of a body. A character is never cut."""
    piece, is_cut = body[:most], len(body) > most
    text, encoding = text_of(piece, is_cut=is_cut)
    kind: BodyKind = "binary" if encoding == "base64" else _kind(text, content_type, is_cut=is_cut)
    return BodyPreview(text, encoding, kind, len(body), is_cut)


def _kind(text: str, content_type: str, *, is_cut: bool) -> BodyKind:
    """What a text seems to be: by its content type, or by how it begins and whether it can be read."""
    start = text.lstrip()[:1]
    if not text:
        return "empty"
    if "\0" in text:
        return "binary"
    if "json" in content_type or (start in ("{", "[") and (is_cut or _is_json(text))):
        return "json"
    return "xml" if "xml" in content_type or start == "<" else "text"


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
