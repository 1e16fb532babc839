"""Each search is run for a moment and finds nothing, and is shown to find what is wrong."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from quire.broker.producer_ids import ProducerIds
from quire.cluster import verb_frames
from quire.cluster.link import Kind, LinkDecoder, VirtualConnection, encode, encode_struct
from quire.cluster.verb_frames import Run, VerbFrame
from quire.errors import InvalidSettings
from quire.http.app import ENDPOINTS
from quire.message import Message
from quire.options import duration
from quire.protocols.openwire import codec as openwire
from quire.protocols.openwire.commands import KeepAliveInfo
from quire.protocols.openwire.negotiation import WireFormat
from quire.protocols.stomp import decoder as stomp
from quire.settings import load
from tests.fuzz import http, links, openwire_decoder, selectors, settings, stomp_decoder, verbs
from tests.fuzz.fuzzing import search

ROOT = Path(__file__).parents[2]

SEARCHES = {
    stomp_decoder.search: 1000, openwire_decoder.search: 500, links.search: 300, verbs.search: 300, http.search: 60,
    selectors.search: 500, settings.search: 300,
}  # fmt: skip
"""How many examples each is held to."""


@pytest.mark.slow
@pytest.mark.parametrize("found", SEARCHES, ids=lambda found: found.__module__.rpartition(".")[2])
def test_some_hundred_examples_find_nothing(found: Callable[[], None]) -> None:
    search(found, SEARCHES[found], is_random=False)


@pytest.mark.slow
def test_a_fuzzer_is_a_command() -> None:
    command = [sys.executable, "-m", "tests.fuzz.stomp_decoder", "--seconds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


LOSSY: dict[str, tuple[type, str, Callable[[], None]]] = {
    "stomp": (
        stomp.Decoder, "next_events",
        lambda: stomp_decoder.check_bytes(b"\0\x3f\x3f\x3f" + b"BEGIN\na:b\n\n\0" * 8),
    ),
    "openwire": (
        openwire.Decoder, "next_commands",
        lambda: openwire_decoder.check(
            openwire_decoder.encoded(WireFormat(), [KeepAliveInfo(number) for number in range(8)]), [25], WireFormat()
        ),
    ),
    "links": (LinkDecoder, "frames", lambda: links.check_decoder(encode(Kind.BEAT) * 8, [10])),
    "verbs": (
        verb_frames.VerbDecoder, "frames",
        lambda: verbs.check_stream(verb_frames.encode(verb_frames.Kind.PART_GONE, ref=1) * 8, [10]),
    ),
}  # fmt: skip
"""A decoder, the method that loses all but the first frame, and what has to find that."""


@pytest.mark.parametrize("name", LOSSY)
def test_a_decoder_that_loses_a_frame_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, method, check = LOSSY[name]
    right = getattr(decoder, method)
    check()
    monkeypatch.setattr(decoder, method, lambda self: right(self)[:1])
    with pytest.raises(AssertionError, match="depend on how the stream is cut"):
        check()


def test_a_window_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = encode_struct(Kind.OPEN, 1, links.OPENING) + encode(Kind.DATA, 1, b"x" * 60_000) * 5
    links.check_link(stream, [10_000], [0], is_owner=True, is_known=True)

    def takes_all(connection: VirtualConnection, data: bytes) -> None:
        connection.unread += len(data)

    monkeypatch.setattr(VirtualConnection, "data_came", takes_all)
    with pytest.raises(AssertionError, match="more has come than the window"):
        links.check_link(stream, [10_000], [0], is_owner=True, is_known=True)


def test_a_column_that_is_read_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    verbs.check_stream(verbs.examples()[0], [10])
    right = verb_frames.read_run

    def turns_priorities_round(frame: VerbFrame) -> Run:
        run = right(frame)
        run.priorities = run.priorities[::-1]
        return run

    monkeypatch.setattr(verb_frames, "read_run", turns_priorities_round)
    with pytest.raises(AssertionError, match="read as something else"):
        verbs.check_stream(verbs.examples()[0], [10])


LIST = http.Sent(next(row for row in ENDPOINTS if row.path == "/producers"), "/producers", [], b"", {})


def test_an_answer_that_is_an_error_of_the_brokers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    http.check_all([LIST])

    def fails(ids: ProducerIds) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(ProducerIds, "ids", fails)
    with pytest.raises(http.BadAnswer, match="500"):
        http.check_all([LIST])


def test_an_answer_of_another_type_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerIds, "ids", lambda producers: ["a"])
    monkeypatch.setattr(ProducerIds, "status", lambda producers, id: {"id": 1})
    with pytest.raises(http.BadAnswer, match="str"):
        http.check_all([LIST])


LONG = Message(1, b"message-id:1\ntimestamp:1\na:" + b"a" * 10_000 + b"\n\n", 0, 4, True)
MANY = " OR ".join(["a LIKE '%" + "_" * 480 + "b%'"] * 18)


def test_patterns_that_cost_too_much_are_refused() -> None:
    assert not selectors.check(MANY, LONG)


def test_a_selector_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "SLOWEST", 0.0)
    with pytest.raises(AssertionError, match=" s for "):
        selectors.check("a LIKE '%b%'", LONG)


HUGE = {
    "decimal": "memory.limit = " + "9" * 5000,
    "hexadecimal": "memory.limit = 0x" + "f" * 5000,
    "in a composite": "composites = [{queue = 0x" + "f" * 5000 + ", forward_to = []}]",
    "in a list": "memory.limit = [0x" + "f" * 5000 + "]",
    "deep": "x = " + "[" * 5000,
}


@pytest.mark.parametrize("content", HUGE.values(), ids=HUGE)
def test_what_python_cannot_read_or_write_is_an_error_as_any_other(tmp_path: Path, content: str) -> None:
    file = tmp_path / "quire.toml"
    file.write_text(content)
    with pytest.raises(InvalidSettings) as caught:
        load(file, {}, {})
    assert len(str(caught.value)) < 2000


def test_a_value_that_is_written_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "quire.toml"
    file.write_text('policy.redelivery_delay = "0.5ms"')
    assert settings.check(file, {}, {})
    file.write_text('policy.redelivery_delay = "0.5ms"')
    monkeypatch.setattr("quire.options._written_duration", lambda seconds: f'"{round(seconds * 1000)}ms"')
    assert duration(0).parse(duration(0).write(0.0005).strip('"')) != 0.0005
