"""How all fuzzers search: guided by coverage if atheris is installed and the fuzzer takes bytes, else by Hypothesis."""

import argparse
import inspect
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis.database import InMemoryExampleDatabase


class Guided(NamedTuple):
    """A search that is guided by coverage."""

    check: Callable[[bytes], None]
    owners: Sequence[Any]  # the classes and modules whose functions are followed
    corpus: Sequence[bytes]
    words: Sequence[bytes] = ()  # what inputs are put together from


def search(property: Callable[[], None], examples: int, *, is_random: bool) -> None:
    """Hold a function of Hypothesis to so many examples: to the same ones each time unless they are random."""
    settings(
        max_examples=examples, deadline=None, database=InMemoryExampleDatabase() if is_random else None,
        derandomize=not is_random, suppress_health_check=list(HealthCheck),
    )(property)()  # fmt: skip


def main(property: Callable[[], None], a_second: int, guided: Guided | None = None) -> None:
    """Search for the time given on the command line; ``a_second`` is how many examples Hypothesis gets through."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="how long to search")
    seconds = parser.parse_args().seconds
    if guided and find_spec("atheris"):
        _search_with_atheris(guided, seconds)
    else:
        search(property, seconds * a_second, is_random=True)


def _search_with_atheris(guided: Guided, seconds: int) -> None:
    atheris = import_module("atheris")
    for owner in guided.owners:
        for name, function in list(vars(owner).items()):
            if inspect.isfunction(function) and function.__module__ == getattr(owner, "__module__", owner.__name__):
                setattr(owner, name, atheris.instrument_func(function))
    with tempfile.TemporaryDirectory() as directory:
        corpus, words = Path(directory, "corpus"), Path(directory, "words")
        corpus.mkdir()
        words.write_text("".join('"' + "".join(map(r"\x{:02x}".format, word)) + '"\n' for word in guided.words))
        for number, example in enumerate(guided.corpus):
            (corpus / f"{number}").write_bytes(example)
        limits = [f"-max_total_time={seconds}", "-error_exitcode=1", "-max_len=600", f"-artifact_prefix={directory}/"]
        atheris.Setup([sys.argv[0], *limits, f"-dict={words}", str(corpus)], guided.check)
        atheris.Fuzz()
