"""Tracing where the extra is not installed: who asks for it is told what to install."""

import sys

import pytest

from quire.client.session_core import _tracing
from quire.clock import ManualClock
from quire.errors import UnsupportedEnvironment
from quire.server.service import started_tracer
from quire.settings import Settings


def test_a_broker_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(UnsupportedEnvironment, match=r"quire\[otel\]"):
        started_tracer(Settings(), ManualClock())


def test_a_client_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "quire.client.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(UnsupportedEnvironment, match=r"quire\[otel\]"):
        _tracing()
