"""Fuzz the settings: ``python -m tests.fuzz.settings --seconds 60``; exits 1 on a finding.

Whatever a file, the environment and the flags have, they are settings, or an error that names what is wrong. Settings
that are taken can be explained, written, and read back as they were.
"""

import json
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from quire.errors import InsecureAddress, InvalidSettings
from quire.settings import KEYS, Settings, explain, load
from tests.fuzz.fuzzing import main

EXAMPLES_A_SECOND = 100

NAMES = [
    *KEYS,
    "stomp.adress",
    "policy",
    "policies",
    "composites",
    "x",
    "",
    "a.b.c",
    "memory",
    "memory.limit.x",
    "\u00fc",
]

TEXTS = [
    "", " ", "0", "-1", "1e3", "1_000", "\u0663", "9" * 20, "9" * 5000, "nan", "inf", "1" + "0" * 400 + "d", "1GB",
    "64MiB",
    "0.5ms", "30s", "7d", "1h 30m", "10s 30s", "true", "yes", "auto", "127.0.0.1:0", "0.0.0.0:1", "[::1]:1", "[::1:1",
    "localhost:\u0661", ":0", "h:99999999999999999999", "\0", "a\nb", "queue://q", "topic://t", "queue://>", "DLQ.>",
    "a.*", "VirtualTopic.>", "Consumer.*.", "memory:", "lmdb:/x", "a > 1", "(((", "x" * 2000,
]  # fmt: skip

HUGE = {
    "<decimal>": "9" * 5000, "<hexadecimal>": "0x" + "f" * 5000, "<date>": "1979-05-27T07:32:00Z",
    "<deep>": "[" * 5000, "<list>": "[0x" + "f" * 5000 + "]",
    "<table>": "{a.b.c = [1, {d = 2}]}",
}  # fmt: skip
"""What stands for values that are no text in a file: numbers that Python does not write, a date."""

scalars: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(TEXTS), st.text(st.characters(codec="utf-8"), max_size=6), st.booleans(), st.integers(),
    st.sampled_from([-1, 0, 1, 2**31, 2**63, 2**64, 10**30, *HUGE]), st.floats(),
)  # fmt: skip
POLICY = [name.removeprefix("policy.") for name in KEYS if name.startswith("policy.")]
policies = st.lists(st.dictionaries(st.sampled_from(["destination", "x", *POLICY]), scalars, max_size=4), max_size=3)
forwards = scalars | st.fixed_dictionaries({"destination": scalars}, optional={"selector": scalars})
composites = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "queue": scalars,
            "topic": scalars,
            "forward_only": scalars,
            "forward_to": scalars | st.lists(forwards),
        },
    ),
    max_size=3,
)


def toml(value: object) -> str:
    """A value as TOML writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return {"inf": "inf", "-inf": "-inf", "nan": "nan"}.get(str(value), repr(value))
        case list():
            return "[" + ", ".join([toml(part) for part in value]) + "]"
        case dict():
            return "{" + ", ".join([f"{toml(key)} = {toml(part)}" for key, part in value.items()]) + "}"
    return HUGE.get(str(value)) or json.dumps(value).replace("\x7f", "\\u007f")


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """A file: keys with values, entries, or what is no TOML."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.binary(max_size=30) | st.text(max_size=30).map(lambda text: text.encode("utf-8", "replace")))
    chosen = draw(st.dictionaries(st.sampled_from(NAMES), scalars, max_size=4))
    lines = [".".join([toml(part) for part in name.split(".")]) + " = " + toml(value) for name, value in chosen.items()]
    if draw(st.booleans()):
        lines.append("policies = " + toml(draw(policies | scalars)))
    if draw(st.booleans()):
        lines.append("composites = " + toml(draw(composites | scalars)))
    return "\n".join(lines).encode("utf-8", "replace")


environments = st.dictionaries(
    st.sampled_from([*[key.variable for key in KEYS.values()], "QUIRE_X", "QUIRE_STOMP_ADDRESS", "QUIRE_A__B", "HOME"]),
    scalars.filter(lambda value: isinstance(value, str)), max_size=3,
)  # fmt: skip
flags = st.dictionaries(st.sampled_from(NAMES), scalars | st.none(), max_size=3)


def check(file: Path, environment: dict[str, str], given: dict[str, object]) -> bool:
    """Hold settings to what is promised of them."""
    try:
        found = load(file, environment, given)
    except (InvalidSettings, InsecureAddress) as error:
        json.dumps([str(error), error.data], default=str)
        return False
    assert isinstance(found, Settings)
    for setting in explain(file, environment, given):
        kind = KEYS[setting.key].kind
        text = kind.write(setting.value)
        file.write_text(f"x = {text}", encoding="utf-8")
        again = KEYS[setting.key].read(_read(file), "test").value
        assert again == setting.value, f"{setting.key}: {setting.value!r} is written {text} and read {again!r}"
    return True


def _read(file: Path) -> object:
    return tomllib.loads(file.read_text(encoding="utf-8"))["x"]


@given(documents(), environments, flags)
def search(document: bytes, environment: dict[str, str], chosen: dict[str, object]) -> None:
    with TemporaryDirectory() as directory:
        file = Path(directory, "quire.toml")
        file.write_bytes(document)
        check(file, environment, chosen)


if __name__ == "__main__":
    main(search, EXAMPLES_A_SECOND)
