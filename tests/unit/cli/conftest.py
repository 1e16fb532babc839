"""A broker for the command line that is only its answers."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner, Result

from quire.cli import api
from quire.cli.main import main


@dataclass
class FakeBroker:
    """Answers HTTP requests from a table, and remembers them.

    Attributes:
        answers: status and content by method and path below ``/api/v1``; a list is used up one by one.
        calls: (method, path, query, body) of each request.
    """

    answers: dict[tuple[str, str], Any] = field(default_factory=dict)
    calls: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)  # where each request went, without the path
    patience: float | None = 0.0  # how long the last one would have waited
    authorization: str | None = None  # who the last one was from

    def answer(self, method: str, path: str, content: object, status: int = 200) -> None:
        self.answers[method, path] = (status, content)

    def answer_in_turn(self, method: str, path: str, *contents: object) -> None:
        self.answers[method, path] = [(200, content) for content in contents]

    def exchange(
        self, method: str, url: str, body: bytes | None, patience: float | None, authorization: str | None
    ) -> tuple[int, bytes]:
        self.authorization = authorization
        self.patience = patience
        parts = urlsplit(url)
        path = parts.path.removeprefix("/api/v1")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.urls.append(f"{parts.scheme}://{parts.netloc}")
        self.calls.append((method, path, query, None if body is None else json.loads(body)))
        answer = self.answers[method, path]
        status, content = answer.pop(0) if isinstance(answer, list) else answer
        return status, content if isinstance(content, bytes) else json.dumps(content).encode()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    fake = FakeBroker()
    monkeypatch.setattr(api, "exchange", fake.exchange)
    monkeypatch.delenv("QUIRE_URL", raising=False)
    return fake


@pytest.fixture
def run() -> Callable[..., Result]:
    def invoke(*arguments: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(main, list(arguments), input=stdin, catch_exceptions=False)

    return invoke
