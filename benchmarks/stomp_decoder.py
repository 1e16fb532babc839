"""What the STOMP codec costs, in microseconds per frame: ``python -m benchmarks.stomp_decoder``."""

from collections.abc import Callable
from time import perf_counter

from quire.protocols.stomp.decoder import Decoder, Limits
from quire.protocols.stomp.frames import CLIENT_COMMANDS, SERVER_COMMANDS, encode_frame, encode_receipts

FRAMES = 20_000
CHUNK = 64 * 1024
BODY = b"x" * 1024
REPEATS = 5


def _chunks(stream: bytes) -> list[bytes]:
    return [stream[start : start + CHUNK] for start in range(0, len(stream), CHUNK)]


def _decode(chunks: list[bytes], commands: frozenset[bytes]) -> Callable[[], None]:
    def run() -> None:
        decoder = Decoder(Limits(), commands)
        for chunk in chunks:
            decoder.receive(chunk)
            while decoder.next_events():
                pass
        if decoder.buffered:
            raise SystemExit("the stream was not decoded to its end")

    return run


def _send(receipt: str, body_size: int = len(BODY), end: str = "\n") -> bytes:
    headers = ["destination:/queue/orders", "persistent:true", f"content-length:{body_size}", f"receipt:{receipt}"]
    return end.join(["SEND", *headers, "", ""]).encode() + BODY[:body_size] + b"\0"


def _message(number: int) -> bytes:
    headers = {"subscription": "1", "message-id": f"m{number}", "destination": "/queue/orders", "ack": f"{number}"}
    return encode_frame(b"MESSAGE", headers, BODY)


def _cases() -> dict[str, Callable[[], object]]:
    sends = {
        "SEND, 1 KiB, receipt": [_send(str(i)) for i in range(FRAMES)],
        "SEND, 1 KiB, receipt with dashes": [_send(f"message-{i}") for i in range(FRAMES)],
        "SEND, a new head each": [_send(str(i), i % 1000) for i in range(FRAMES)],
        "SEND, 1 KiB, carriage returns": [_send(str(i), end="\r\n") for i in range(FRAMES)],
        "ACK": [b"ACK\nid:%d\n\n\0" % i for i in range(FRAMES)],
    }
    cases: dict[str, Callable[[], object]] = {}
    for name, frames in sends.items():
        cases[f"decode {name}"] = _decode(_chunks(b"".join(frames)), CLIENT_COMMANDS)
    cases["decode MESSAGE, 1 KiB"] = _decode(_chunks(b"".join(_message(i) for i in range(FRAMES))), SERVER_COMMANDS)
    ids = [b"%d" % i for i in range(FRAMES)]
    cases["encode RECEIPT"] = lambda: encode_receipts(ids)
    headers = {"destination": "/queue/orders", "persistent": "true", "receipt": "1"}
    cases["encode SEND, 1 KiB, receipt"] = lambda: [encode_frame(b"SEND", headers, BODY) for _ in ids]
    cases["encode ACK"] = lambda: [encode_frame(b"ACK", {"id": "1"}) for _ in ids]
    return cases


def main() -> None:
    for name, run in _cases().items():
        best = float("inf")
        for _ in range(REPEATS):
            start = perf_counter()
            run()
            best = min(best, perf_counter() - start)
        print(f"{name:40} {best / FRAMES * 1e6:6.2f} µs")


if __name__ == "__main__":
    main()
