"""The search in the settings is run for a moment, and is shown to find something."""

from pathlib import Path

import pytest

from quire.errors import InvalidSettings
from quire.options import duration
from quire.settings import load
from tests.fuzz.settings import check, search

HUGE = {
    "decimal": "memory.limit = " + "9" * 5000,
    "hexadecimal": "memory.limit = 0x" + "f" * 5000,
    "in a composite": "composites = [{queue = 0x" + "f" * 5000 + ", forward_to = []}]",
    "in a list": "memory.limit = [0x" + "f" * 5000 + "]",
    "deep": "x = " + "[" * 5000,
}


@pytest.mark.slow
def test_some_hundred_settings_find_nothing() -> None:
    search(300, is_random=False)


@pytest.mark.parametrize("content", HUGE.values(), ids=HUGE)
def test_what_python_cannot_read_or_write_is_an_error_as_any_other(tmp_path: Path, content: str) -> None:
    file = tmp_path / "quire.toml"
    file.write_text(content)
    with pytest.raises(InvalidSettings) as caught:
        load(file, {}, {})
    assert len(str(caught.value)) < 2000


def test_a_value_that_is_written_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "quire.toml"
    file.write_text('policy.redelivery_delay = "0.5ms"')
    assert check(file, {}, {})
    file.write_text('policy.redelivery_delay = "0.5ms"')
    monkeypatch.setattr("quire.options._written_duration", lambda seconds: f'"{round(seconds * 1000)}ms"')
    assert duration(0).parse(duration(0).write(0.0005).strip('"')) != 0.0005
