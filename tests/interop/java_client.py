"""A Java machine that runs scenarios, one after the other, with one line of the ActiveMQ client against one broker."""

import json
import re
import subprocess
from dataclasses import dataclass
from types import TracebackType
from typing import IO

from tests.acceptance.crash.broker_process import START_SECONDS
from tests.interop.brokers import JAVA, Broker
from tests.interop.java_build import HERE, class_path

_SCENARIO = re.compile(r"@Scenario(?:\((?:[^()\"]|\"[^\"]*\")*\))?\s+void (\w+)\(")


def scenario_names() -> list[str]:
    sources = sorted((HERE / "java").glob("*.java"))
    return [f"{path.stem}.{name}" for path in sources for name in _SCENARIO.findall(path.read_text())]


@dataclass(frozen=True)
class Result:
    result: str  # passed, skipped or failure
    text: str  # the reason, or the stack


class JavaClient:
    """A Java machine that runs while it is used as a context."""

    def __init__(self, line: int, broker: Broker) -> None:
        self._broker = broker  # where it connects to, running
        command = [*JAVA, "-cp", class_path(f"client{line}", "java"), "Interop", broker.kind, broker.address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> "JavaClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(START_SECONDS)
        self._input.close()
        self._output.close()

    @property
    def _input(self) -> IO[str]:
        assert self._process.stdin
        return self._process.stdin

    @property
    def _output(self) -> IO[str]:
        assert self._process.stdout
        return self._process.stdout

    def run(self, scenario: str) -> Result:
        if not self._broker.running:  # an earlier scenario has failed while the broker was away
            self._broker.kill()
            self._broker.start()
        failure: AssertionError | None = None
        self._say(scenario)
        while line := self._output.readline():
            answer = json.loads(line)
            if "scenario" in answer:
                if failure is not None:
                    raise failure
                return Result(answer["result"], answer["text"])
            try:
                {"kill": self._broker.kill, "stop": self._broker.stop, "start": self._broker.start}[answer["ask"]]()
            except AssertionError as error:
                failure = error
            self._say("done" if failure is None else "failed")
        raise AssertionError(f"the Java machine has ended in {scenario}")

    def _say(self, line: str) -> None:
        self._input.write(f"{line}\n")
        self._input.flush()
