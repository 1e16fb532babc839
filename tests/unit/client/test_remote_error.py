"""Errors the broker told: every code comes back as its type."""

import pytest

from quire.client.remote import error_classes, remote_error
from quire.errors import ERRORS, QuireError


@pytest.mark.parametrize("code", list(ERRORS))
def test_every_code_comes_back_as_its_type(code: str) -> None:
    error = remote_error(code, "what happened", {"name": "q"})
    assert error.code == code
    assert (str(error), error.data) == ("what happened", {"name": "q"})


def test_unknown_code_stays_in_the_text() -> None:
    error = remote_error("of-tomorrow", "what happened", {})
    assert type(error) is QuireError
    assert str(error) == "what happened (of-tomorrow)"


def test_parents_come_before_their_children() -> None:
    classes = error_classes()
    assert len(classes) == len(set(classes))
    for error_class in classes[1:]:
        assert classes.index(error_class.__bases__[0]) < classes.index(error_class)
