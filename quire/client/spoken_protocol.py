"""The protocol that a port speaks, by the first bytes of what it answers."""

_BEGINNINGS = {
    "HTTP": b"HTTP/", "STOMP": b"ERROR", "HTTPS": b"\x15\x03", "AMQP": b"AMQP", "SSH": b"SSH-",
}  # fmt: skip
"""How the answers of protocols begin; that of a TLS port to a plain request is an alert (RFC 8446, section 6)."""

QUESTION = b"GET / HTTP/1.0\r\n\r\n"
"""What every port answers that speaks a protocol of text, if only with an error."""


def protocol_of(answer: bytes) -> str:
    """The protocol of an answer; empty if it is none that is known."""
    for name, begin in _BEGINNINGS.items():
        if answer.startswith(begin):
            return name
    return "OpenWire" if b"ActiveMQ" in answer[:16] else ""
