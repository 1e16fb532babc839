"""What two sides have agreed on: how the frames behind their ``WireFormatInfo`` look."""

from dataclasses import dataclass, replace

from quire.errors import UnsupportedVersion
from quire.protocols.openwire.wire_fields import VERSIONS

UNLIMITED_CACHE = 16383
"""The size of a cache for which no size was agreed."""

DEFAULT_MAX_FRAME_SIZE = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WireFormat:
    """How frames look in one direction, and what else the two sides agree on.

    Attributes:
        version: of OpenWire, 1 to 12.
        tight: whether frames are in the tight encoding, else in the loose one.
        cache_size: the slots of the cache of objects; 0 = no cache.
        size_prefix: whether each frame begins with its size.
        stack_traces: whether exceptions carry their stack and their cause.
        max_frame_size: of a frame without its size prefix, in octets.
        inactivity_ms: after which silence a connection is dead, in ms; 0 = never.
        initial_delay_ms: how long that is not looked at after the start, in ms.
    """

    version: int = VERSIONS[-1]
    tight: bool = False
    cache_size: int = 0
    size_prefix: bool = True
    stack_traces: bool = False
    max_frame_size: int = DEFAULT_MAX_FRAME_SIZE
    tcp_no_delay: bool = True
    inactivity_ms: int = 30_000
    initial_delay_ms: int = 10_000

    @classmethod
    def agreed(cls, own: "WireFormat", peer: "WireFormat") -> "WireFormat":
        """What both sides can do.

        Raises:
            UnsupportedVersion: the peer has none of the versions that there are.
        """
        version = min(own.version, peer.version)
        if version not in VERSIONS:
            raise UnsupportedVersion(f"the peer offers version {peer.version} of OpenWire", version=peer.version)
        return replace(
            own,
            version=version,
            tight=own.tight and peer.tight,
            cache_size=min(own.cache_size, peer.cache_size),
            size_prefix=own.size_prefix or peer.size_prefix,
            stack_traces=own.stack_traces and peer.stack_traces,
            max_frame_size=_smaller(own.max_frame_size, peer.max_frame_size),
            tcp_no_delay=own.tcp_no_delay and peer.tcp_no_delay,
            inactivity_ms=min(own.inactivity_ms, peer.inactivity_ms),
            initial_delay_ms=min(own.initial_delay_ms, peer.initial_delay_ms),
        )


FIRST = WireFormat()
"""How the first frame of both sides looks, whatever is agreed: loose, with its size, without a cache."""


def _smaller(own: int, peer: int) -> int:
    # A side that sets no limit says 0 or less.
    return min(own, peer) if own > 0 and peer > 0 else max(own, peer)
