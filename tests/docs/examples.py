"""The examples of a page: fenced blocks tagged ``sh`` or ``python``, and how one of them is run.

A block runs unless its info string says why not: ``sh no-run: needs root``. A block tagged ``text output`` right after
an example is what it must print; ``...`` stands for anything. Pages name the broker's usual ports; an example runs with
those of the broker that was started for it.
"""

import doctest
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.docs.running_broker import RunningBroker

_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<code>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_MISNAMED = {"bash", "console", "py", "shell"}


@dataclass(frozen=True)
class Example:
    language: str  # ``sh`` or ``python``
    line: int  # where its code starts in the page
    code: str
    output: str | None = None  # what it must print; None if the page does not say


def find_examples(text: str) -> list[Example]:
    found: list[Example] = []
    end_of_last = -1
    for block in _FENCE.finditer(text):
        language, _, rest = block["info"].strip().partition(" ")
        line = text.count("\n", 0, block.start()) + 2
        if language in _MISNAMED:
            raise ValueError(f"line {line}: tag it sh or python, not {language}")
        if (language, rest) == ("text", "output"):
            if end_of_last < 0 or text[end_of_last : block.start()].strip():
                raise ValueError(f"line {line}: this output follows no example that runs")
            found[-1] = Example(found[-1].language, found[-1].line, found[-1].code, block["code"])
        end_of_last = -1
        if language in ("sh", "python") and not _left_out(rest, line):
            found.append(Example(language, line, block["code"]))
            end_of_last = block.end()
    return found


def _left_out(rest: str, line: int) -> bool:
    if not rest:
        return False
    if re.fullmatch(r"no-run: \S.*", rest):
        return True
    raise ValueError(f"line {line}: write 'no-run: ' and the reason, not {rest!r}")


def run_example(example: Example, broker: RunningBroker, directory: Path) -> None:
    code = re.sub(r"\b61613\b", str(broker.stomp_port), example.code)
    code = re.sub(r"\b8161\b", str(broker.http_port), code)
    shell = ["bash", "-euo", "pipefail", "-c"]
    ended = subprocess.run(
        [*(shell if example.language == "sh" else [sys.executable, "-c"]), code],
        cwd=directory,
        env=environment(broker),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = f"line {example.line}:\n{code}\nstdout:\n{ended.stdout}\nstderr:\n{ended.stderr}"
    assert ended.returncode == 0, f"exit code {ended.returncode} of the example in {said}"
    if example.output is not None:
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        same = doctest.OutputChecker().check_output(example.output, ended.stdout, flags)
        assert same, f"the page says\n{example.output}\nbut the example printed something else, {said}"


def environment(broker: RunningBroker) -> dict[str, str]:
    """The environment of an example: ``quire`` is on the PATH and finds the broker."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "QUIRE_URL": f"http://127.0.0.1:{broker.http_port}"}
