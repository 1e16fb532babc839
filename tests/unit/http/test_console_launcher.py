"""The launcher of the console: what it tells those who ask for the console, and how it keeps its process."""

import asyncio
import importlib.util
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from quire.errors import BrokerBusy, IllegalState, UnsupportedEnvironment
from quire.http import console_launcher
from quire.http.console_launcher import ConsoleLauncher
from quire.settings import Settings
from tests.unit.http.conftest import Api

GOOD = "tests.unit.http.small_console"


def launcher(module: str = GOOD, **console: object) -> ConsoleLauncher:
    settings = Settings()
    given = replace(settings.console, **{"enabled": True, "address": "127.0.0.1:1", **console})  # type: ignore[arg-type]
    return ConsoleLauncher(replace(settings, console=given), module)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


async def until_there(keeper: ConsoleLauncher) -> str:
    while True:
        try:
            return keeper.url("localhost")
        except BrokerBusy:
            await asyncio.sleep(0.02)


def test_a_console_that_is_switched_off_is_not_started() -> None:
    async def scenario() -> None:
        keeper = launcher(enabled=False)
        keeper.start("127.0.0.1:8161")
        with pytest.raises(IllegalState, match=r"console\.enabled"):
            keeper.url("localhost")
        await keeper.stop()

    run(scenario)


def test_where_it_is_not_installed_the_one_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    async def scenario() -> None:
        keeper = launcher()
        keeper.start("127.0.0.1:8161")
        with pytest.raises(UnsupportedEnvironment, match=r"pip install quire\[console\]"):
            keeper.url("localhost")
        await keeper.stop()

    run(scenario)


@pytest.mark.slow
def test_it_is_there_comes_back_after_its_death_and_ends_at_the_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_launcher, "FIRST_PAUSE", 0.01)
    caplog.set_level("INFO", "quire")

    def process() -> int:
        starts = [record for record in caplog.records if getattr(record, "event", "") == "console.started"]
        return int(starts[-1].data["pid"])  # type: ignore[attr-defined]

    async def scenario() -> None:
        keeper = launcher()
        keeper.start("0.0.0.0:8161")
        first = await until_there(keeper)
        assert first.startswith("http://127.0.0.1:")
        os.kill(process(), signal.SIGKILL)
        while keeper_url(keeper) == first:
            await asyncio.sleep(0.02)
        await until_there(keeper)
        await keeper.stop()
        with pytest.raises(ProcessLookupError):
            os.kill(process(), 0)

    run(scenario)


def test_it_is_told_its_names_and_one_that_ends_just_when_it_is_killed_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ends:
        """A process that takes long to end, and has ended when it is to be killed."""

        pid, returncode = 1, None

        def __init__(self) -> None:
            self.stdin = self.stdout = self
            self.has_ended = asyncio.Event()

        async def readline(self) -> bytes:
            return b'{"address": "127.0.0.1:9999"}'

        def close(self) -> None:
            """Its input ends."""

        async def wait(self) -> int:
            await self.has_ended.wait()
            return 0

        def kill(self) -> None:
            self.has_ended.set()
            raise ProcessLookupError

    shown: list[object] = []

    async def start(*arguments: object, **_: object) -> Ends:
        shown.extend(arguments)
        return Ends()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    monkeypatch.setattr(console_launcher, "STOP_LIMIT", 0.0)

    async def scenario() -> None:
        settings = Settings()
        keeper = ConsoleLauncher(replace(settings, http=replace(settings.http, names="console.example here")), GOOD)
        keeper.start("127.0.0.1:8161")
        await until_there(keeper)
        await keeper.stop()

    run(scenario)
    assert shown[shown.index("--names") + 1] == "console.example here"


@pytest.mark.slow
def test_a_renewed_certificate_is_taken_by_a_new_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_launcher, "FIRST_PAUSE", 0.01)
    file = tmp_path / "server.pem"
    file.write_text("first")
    settings = replace(Settings(), tls=replace(Settings().tls, certificate=str(file)))

    async def scenario() -> None:
        keeper = launcher()
        keeper.reload(settings)  # before it has begun
        keeper.start("0.0.0.0:8161")
        first = await until_there(keeper)
        keeper.reload(settings)
        await asyncio.sleep(0.1)
        assert keeper.url("localhost") == first
        file.write_text("second")
        keeper.reload(settings)
        while keeper_url(keeper) in ("", first):
            await asyncio.sleep(0.02)
        await keeper.stop()

    run(scenario)
    assert "there is no console" not in caplog.text


def keeper_url(keeper: ConsoleLauncher) -> str:
    try:
        return keeper.url("localhost")
    except BrokerBusy:
        return ""


@pytest.mark.slow
def test_one_that_cannot_start_is_told_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_launcher, "FIRST_PAUSE", 0.01)

    async def scenario() -> None:
        keeper = launcher("quire.there_is_no_such_module")
        keeper.start("127.0.0.1:8161")
        while not caplog.records:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)
        await keeper.stop()

    run(scenario)
    assert len(caplog.records) == 1
    assert "the broker starts it again" in caplog.text


@pytest.mark.slow
def test_one_whose_address_is_in_use_takes_a_free_port_in_the_end_and_says_which(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two brokers run on this machine. At first it may be the console of the broker before."""
    monkeypatch.setattr(console_launcher, "FIRST_PAUSE", 0.01)
    caplog.set_level("INFO", "quire")

    async def scenario() -> None:
        keeper = launcher("tests.unit.http.occupied_console")
        keeper.start("127.0.0.1:8161")
        assert await until_there(keeper) == "http://127.0.0.1:9999/"
        await keeper.stop()

    run(scenario)
    assert [record.event for record in caplog.records] == ["console.down", "console.started"]  # type: ignore[attr-defined]
    assert "at http://127.0.0.1:9999/, since 127.0.0.1:1 is in use" in caplog.text


def test_the_root_of_the_api_leads_to_the_console_or_says_why_not(api: Api) -> None:
    api.application.services.console.url = lambda host: f"http://{host}:8162/"  # type: ignore[method-assign]
    answer = api.call("GET", "/", base="")
    assert (answer.status_code, answer.headers["location"]) == (307, "http://127.0.0.1:8162/")
    api.application.services.console = launcher(enabled=False)
    assert api.error("GET", "/", base="") == (409, "illegal-state")
