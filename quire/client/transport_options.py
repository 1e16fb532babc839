"""The options of one transport, in URLs without a prefix or as ``wireFormat.NAME``."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WireFormatOptions:
    """What the client offers when the format of the connection is agreed.

    Attributes:
        version: the highest version of OpenWire.
        tight_encoding_enabled: the shorter encoding, which takes more time.
        cache_enabled: send objects that repeat by a number.
        cache_size: how many of them.
        stack_trace_enabled: exceptions come with the broker's stack.
        tcp_no_delay_enabled: send small frames at once.
        size_prefix_disabled: frames have no length before them.
        max_inactivity_duration: after how many ms of silence a side is taken for dead; 0: never.
        max_inactivity_duration_inital_delay: when that is checked first, in ms (ActiveMQ spells it so).
        max_frame_size: the largest frame, in bytes.
    """

    version: int = 12
    tight_encoding_enabled: bool = False
    cache_enabled: bool = False
    cache_size: int = 1024
    stack_trace_enabled: bool = False
    tcp_no_delay_enabled: bool = True
    size_prefix_disabled: bool = False
    max_inactivity_duration: int = 30_000
    max_inactivity_duration_inital_delay: int = 10_000
    max_frame_size: int = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """The options of one transport.

    Attributes:
        connection_timeout: how long connecting may take, in ms.
        wire_format: what is offered for the format.
    """

    connection_timeout: int = 30_000
    wire_format: WireFormatOptions = field(default_factory=WireFormatOptions)
