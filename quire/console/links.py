"""Links from one thing of the broker to the page about it."""

from typing import Any

from quire.console.page import Page


def subject_link(page: Page, kind: str, name: str | None) -> str | None:
    """The page about a thing, by its kind and name as the API has them; None if there is none.

    Args:
        page: where the link is.
        kind: ``queue``, ``topic``, ``stream``, ``durable``, ``group`` or ``broker``.
        name: its name: ``CLIENT/NAME`` of a durable subscription, ``STREAM/GROUP`` of a group.
    """
    if kind in ("queue", "topic", "stream") and name:
        return page.link(f"/{kind}", name=name)
    first, slash, second = (name or "").partition("/")
    if kind == "durable" and slash:
        return page.link("/durable", client=first, name=second)
    if kind == "group" and slash:
        return page.link("/group", stream=first, name=second)
    return page.link("/store") if kind == "broker" else None


def destination_link(page: Page, destination: str) -> str | None:
    """The page about a destination, written ``queue://orders``."""
    kind, colon, name = destination.partition("://")
    return subject_link(page, kind, name) if colon else None


def queue_link(page: Page, entry: dict[str, Any]) -> str:
    """The page about a queue of a list."""
    return page.link("/queue", name=entry["name"])
