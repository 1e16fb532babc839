"""Bulk writes over a broker's HTTP API."""

from typing import Any
from urllib.parse import urlencode

import msgspec

from quire.spark.online.credentials import NO_CREDENTIALS, Credentials
from quire.spark.online.http import answer, content
from quire.spark.online.patience import Patience

COMMIT_LIMIT = 600.0
"""How long the broker may take to put what is committed into its destinations, in seconds."""


class BulkWrites:
    """A broker's HTTP API for many messages, encoded by ``quire.spark.writing.columns``; patience is in seconds.

    What fails for a reason that may pass is tried again: the broker is away or restarts, or has no room. What was asked
    for may be done although its answer was lost: rows that are staged twice do no harm, and a commit counts once.
    """

    def __init__(self, url: str, patience: float, credentials: Credentials = NO_CREDENTIALS) -> None:
        self._url = url
        self._credentials = credentials
        self._patience = patience

    def write(self, rows: bytes) -> None:
        """Send rows; if an answer is lost, perhaps twice."""
        self._post("/write", rows, self._patience)

    def stage(self, producer: str, rows: bytes) -> str:
        """Have rows stored that no consumer sees yet; they are committed by what is returned."""
        return str(self._post(f"/write/stages?{urlencode({'producer': producer})}", rows, self._patience)["stage"])

    def commit(self, producer: str, sequence: int, stages: list[str]) -> None:
        """Write what is staged, unless a commit with this number was made before."""
        body = msgspec.json.encode({"producer": producer, "sequence": sequence, "stages": stages})
        self._post("/write/commit", body, COMMIT_LIMIT)

    def discard(self, producer: str) -> None:
        """Discard all staged rows of a producer."""
        self._post("/write/discard", msgspec.json.encode({"producer": producer}), self._patience)

    def _post(self, path: str, body: bytes, timeout: float) -> dict[str, Any]:
        def post() -> dict[str, Any]:
            with answer("POST", f"{self._url}/api/v1{path}", body, timeout, self._credentials) as response:
                return content(response, dict[str, Any])

        return Patience(self._patience, "writeTimeout").tried(post)
