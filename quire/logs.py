"""Logging as text or JSON lines: every record has an ``event``, a stable name, and data. Bodies are never logged."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

_LOGGER = logging.getLogger("quire")


def event(name: str, text: str, level: int = logging.INFO, **data: Any) -> None:
    _LOGGER.log(level, text, extra={"event": name, "data": data})


def failure(name: str, text: str, error: BaseException, **data: Any) -> None:
    """Log a warning, and where the error was raised."""
    _LOGGER.warning(text, exc_info=error, extra={"event": name, "data": data})


def watch(handler: logging.Handler) -> None:
    _LOGGER.addHandler(handler)


def unwatch(handler: logging.Handler) -> None:
    _LOGGER.removeHandler(handler)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, event, text, and the data."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.name),
            "text": record.getMessage(),
            **getattr(record, "data", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """The text alone for what is usual, with its level in front for what is not."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text if record.levelno <= logging.INFO else f"{record.levelname.lower()}: {text}"


def configure(form: str, level: str) -> None:
    """Send the log to standard error."""
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    _LOGGER.setLevel(level.upper())
