"""What the set-up installs: every version of constraints.txt, once, and only with one of its hashes."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

_HASHES = re.compile(r"( \\\n    --hash=sha256:[0-9a-f]{64})+")


def _pins(text: str) -> list[str]:
    return re.findall(r"^\w[^\n\\]*", text, re.MULTILINE)


def _names(*requirements: str) -> set[str]:
    return {canonicalize_name(Requirement(each).name) for each in requirements}


def _locked(kind: str) -> str:
    return (ROOT / "requirements" / f"{kind}.txt").read_text("utf-8")


def test_every_version_is_locked_in_one_file() -> None:
    locked = [Requirement(pin) for kind in ("build", "run", "dev") for pin in _pins(_locked(kind))]
    wanted = [Requirement(pin) for pin in _pins((ROOT / "constraints.txt").read_text("utf-8"))]
    assert sorted(map(str, locked)) == sorted(map(str, wanted))


def test_every_locked_version_has_hashes_and_nothing_else() -> None:
    for kind in ("build", "run", "dev"):
        entries = re.split(r"\n(?=\w)", _locked(kind).rstrip("\n"))[1:]
        assert entries
        for entry in entries:
            pin = _pins(entry)[0].rstrip()
            assert re.fullmatch(r"[\w.-]+==[\w.]+(; [^\\]+)?", pin), entry
            assert _HASHES.fullmatch(entry.removeprefix(pin)), entry


def test_what_builds_the_package_is_there_before_it_is_built() -> None:
    assert _names(*PROJECT["build-system"]["requires"]) <= _names(*_pins(_locked("build")))


def test_the_broker_and_its_console_need_nothing_that_only_developers_get() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    run = _names(*_pins(_locked("run")))
    assert _names(*PROJECT["project"]["dependencies"], *extras["console"], *extras["bulk"]) <= run
    for name in run:
        needed = [each for text in requires(name) or [] if "extra ==" not in str((each := Requirement(text)).marker)]
        here = [str(each) for each in needed if each.marker is None or each.marker.evaluate()]
        assert _names(*here) <= run | _names(*_pins(_locked("build"))), name
