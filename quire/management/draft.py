"""A message that an operator sends: as a STOMP client would have sent it, within the same limits."""

from collections.abc import Mapping
from dataclasses import dataclass

from quire.destination import Destination
from quire.errors import InvalidHeader, LimitExceeded
from quire.message import header_lines, long_header
from quire.settings.keys import StompSettings

_SENT_IN_STOMP_ONLY = ("destination", "message-id", "timestamp", "transaction", "receipt", "producer-id")


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that is to be sent."""

    body: bytes  # its body
    headers: Mapping[str, str]  # headers of its own, unescaped
    priority: int = 4  # 0 to 9
    expiration: int = 0  # when it expires, in milliseconds since the epoch; 0 for never
    persistent: bool = True  # whether it must survive the broker

    def send_headers(self, destination: Destination, limits: StompSettings) -> dict[str, str]:
        """The headers that a client would have sent with it, within the limits of STOMP."""
        self._check(limits)
        fields = {
            **self.headers,
            "destination": f"/{destination.kind}/{destination.name}",
            "content-length": str(len(self.body)),
        }
        if self.priority != 4 or "priority" in fields:
            fields["priority"] = str(self.priority)
        if self.expiration or "expires" in fields:
            fields["expires"] = str(self.expiration)
        if not self.persistent or "persistent" in fields:
            fields["persistent"] = str(self.persistent).lower()
        return fields

    def _check(self, limits: StompSettings) -> None:
        count = len(self.headers)
        if count > limits.max_headers:
            raise LimitExceeded(f"{count} headers, the limit is {limits.max_headers}", limit=limits.max_headers)
        if (name := long_header(header_lines(dict(self.headers)), limits.max_line)) is not None:
            text = f"the header {name!r} is longer than {limits.max_line} bytes"
            raise LimitExceeded(text, limit=limits.max_line, header=name)
        if len(self.body) > limits.max_body:
            raise LimitExceeded(f"the body has {len(self.body)} bytes", limit=limits.max_body)
        for header, value in self.headers.items():
            if not header or "\0" in header + value or header in _SENT_IN_STOMP_ONLY:
                raise InvalidHeader(
                    f"{header[:60]!r} is a header that this way of sending does not allow", header=header[:60]
                )
