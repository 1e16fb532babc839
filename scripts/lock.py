"""Writes requirements/*.txt: every version of constraints.txt with the hashes of all its files.

`.venv/bin/python scripts/lock.py`, after constraints.txt has changed and that environment has what it names. What is
needed to build is in build.txt, what the broker and its console need in run.txt, the rest in dev.txt. The package index
is asked that pip is configured for, with pip's proxies, certificates and passwords.
"""

import re
import tomllib
from collections.abc import Callable, Iterable
from importlib.metadata import requires
from pathlib import Path

from pip._internal.commands import create_command
from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

ROOT = Path(__file__).resolve().parent.parent
BUILD = "# To build."  # the head of the pins that are for building, up to the next blank line
FILES_OF_INDEX = "application/vnd.pypi.simple.v1+json"  # PEP 691
HEAD = "# Written by scripts/lock.py from constraints.txt: the hashes of all files of each version.\n"


def main() -> None:
    constraints = (ROOT / "constraints.txt").read_text()
    building, _, others = constraints.partition(BUILD)[2].partition("\n\n")
    build, rest = _pins(building), _pins(others)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    running = _closure([*project["dependencies"], *extras["console"], *extras["bulk"]])
    run = {name: pin for name, pin in rest.items() if name in running}
    dev = {name: pin for name, pin in rest.items() if name not in running}
    command = create_command("download")
    options, _ = command.parse_args([])
    with command.main_context():
        session = command.get_default_session(options)

        def hashes_of(pin: Requirement) -> list[str]:
            url = f"{options.index_url.rstrip('/')}/{canonicalize_name(pin.name)}/"
            answer = session.get(url, headers={"Accept": FILES_OF_INDEX})
            answer.raise_for_status()
            files = answer.json()["files"]
            return sorted(file["hashes"]["sha256"] for file in files if _is_of(file["filename"], pin))

        for kind, pins in {"build": build, "run": run, "dev": dev}.items():
            _write(ROOT / "requirements" / f"{kind}.txt", pins.values(), hashes_of)


def _pins(text: str) -> dict[str, Requirement]:
    found = [Requirement(line) for line in text.splitlines() if re.match(r"\w", line)]
    return {canonicalize_name(pin.name): pin for pin in found}


def _closure(roots: Iterable[str]) -> set[str]:
    """The names of some requirements, and of all that they need, as their installed versions say."""
    names, waiting, seen = set[str](), [Requirement(root) for root in roots], set[str]()
    while waiting:
        wanted = waiting.pop()
        if str(wanted) not in seen:
            seen.add(str(wanted))
            names.add(canonicalize_name(wanted.name))
            needed = [Requirement(text) for text in requires(wanted.name) or []]
            waiting += [each for each in needed if _holds(each, {*wanted.extras, ""})]
    return names


def _holds(needed: Requirement, extras: set[str]) -> bool:
    return needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras)


def _is_of(filename: str, pin: Requirement) -> bool:
    try:
        parse = parse_wheel_filename if filename.endswith(".whl") else parse_sdist_filename
        return pin.specifier.contains(parse(filename)[1])
    except ValueError:  # of a kind, or with a name, that pip does not take any more
        return False


def _write(file: Path, pins: Iterable[Requirement], hashes_of: Callable[[Requirement], list[str]]) -> None:
    lines = [" \\\n    ".join([str(pin), *[f"--hash=sha256:{each}" for each in hashes_of(pin)]]) for pin in pins]
    file.parent.mkdir(exist_ok=True)
    file.write_text(HEAD + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
