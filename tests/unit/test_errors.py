"""The table of errors and the classes that stand in it."""

import re
from collections.abc import Iterator

import pytest

from quire.errors import ERRORS, ErrorEntry, QuireError, StoreError, StoreFull


def every_class(root: type[QuireError] = QuireError) -> Iterator[type[QuireError]]:
    """The classes of ``quire.errors``, the root first."""
    yield root
    for subclass in root.__subclasses__():
        if subclass.__module__ == "quire.errors":
            yield from every_class(subclass)


def test_every_code_has_exactly_one_class_and_every_class_a_code() -> None:
    assert sorted(error.code for error in every_class()) == sorted(ERRORS)


@pytest.mark.parametrize("error", list(every_class()))
def test_a_class_is_named_after_its_code(error: type[QuireError]) -> None:
    by_hand = {"internal-error": "QuireError", "store-failed": "StoreError"}
    assert error.__name__ == by_hand.get(error.code, error.code.title().replace("-", ""))


@pytest.mark.parametrize(("code", "entry"), list(ERRORS.items()))
def test_every_entry_tells_what_to_do_and_fits_its_front_doors(code: str, entry: ErrorEntry) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
    assert 400 <= entry.http <= 599
    assert 1 <= entry.exit <= 5
    assert entry.advice.endswith(".")


def test_an_error_carries_its_text_its_data_and_its_entry() -> None:
    error = StoreFull("no space left", path="/data", needed=4096)
    assert str(error) == "no space left"
    assert error.data == {"path": "/data", "needed": 4096}
    assert error.entry is ERRORS["store-full"]
    assert isinstance(error, StoreError)


def test_what_has_no_class_of_its_own_is_an_internal_error() -> None:
    assert QuireError("unforeseen").entry is ERRORS["internal-error"]
