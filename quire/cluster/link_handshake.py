"""How the two sides of a new link show each other that they are of one cluster, and agree who the owner is.

The side that has connected says HELLO: who it is, and which shard with which epoch it looks for. The other side answers
with a CHALLENGE that proves that it has the secret of the cluster, if it is that owner. The first side then gives its
PROOF, and the answer is READY. Both proofs are HMACs over everything that was said, under a name for the role, so
neither can be used for the other, or for another link. With TLS they cover the certificate too.
"""

import hmac
import secrets
from collections.abc import Callable

import msgspec

from quire.cluster.link_frames import Kind, LinkFrame, encode, encode_struct, read_struct
from quire.errors import NotAuthenticated, ProtocolViolation, ShardMoved, UnsupportedVersion

LINK_VERSION = 2
"""The version of what is spoken on links."""

NONCE = 32
"""How many random bytes each side adds."""


class _Hello(msgspec.Struct, frozen=True):
    version: int
    shard: int  # of the side that connects; -1 for a front
    owner: int  # the shard that it looks for
    epoch: int
    nonce: bytes


class _Challenge(msgspec.Struct, frozen=True):
    nonce: bytes
    proof: bytes


class EntryHandshake:
    """The side that connects.

    Args:
        secret: of the cluster.
        shard: the own number; ``FRONT`` for a front.
        owner: the shard that it looks for.
        epoch: the epoch of that shard's owner, by the map.
        nonce: makes random bytes.

    Attributes:
        binding: what TLS says of the certificate of the owner; empty without TLS.
        is_done: whether both sides are known.
    """

    def __init__(
        self, secret: bytes, shard: int, owner: int, epoch: int, nonce: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self.binding = b""
        self.is_done = False
        self._secret = secret
        self._hello = encode_struct(Kind.HELLO, 0, _Hello(LINK_VERSION, shard, owner, epoch, nonce(NONCE)))
        self._has_proven = False

    def begin(self) -> bytes:
        """What is sent first."""
        return self._hello

    def take(self, frame: LinkFrame) -> bytes:
        """Take a frame; returns the answer.

        Raises:
            NotAuthenticated: the other side is not of the cluster.
            ProtocolViolation: the frame may not come now.
        """
        if frame.kind is Kind.READY and self._has_proven:
            self.is_done = True
            return b""
        if frame.kind is not Kind.CHALLENGE or self._has_proven:
            raise ProtocolViolation(f"the link frame {frame.kind.name} may not come now", command=frame.kind.name)
        challenge = read_struct(frame.payload, _Challenge)
        said = (self._hello, challenge.nonce, self.binding)
        if not hmac.compare_digest(challenge.proof, _proof(self._secret, b"owner", *said)):
            raise NotAuthenticated("the process at the address of a shard has not the secret of the cluster")
        self._has_proven = True
        return encode(Kind.PROOF, 0, _proof(self._secret, b"entry", *said))


class OwnerHandshake:
    """The side that is connected to.

    Args:
        secret: of the cluster.
        shard: the own number.
        epoch: gives the own epoch.
        nonce: makes random bytes.

    Attributes:
        binding: what TLS says of the own certificate; empty without TLS.
        is_done: whether both sides are known.
        entry: the shard of the other side; ``FRONT`` for a front; None before HELLO.
    """

    def __init__(
        self, secret: bytes, shard: int, epoch: Callable[[], int], nonce: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self.binding = b""
        self.is_done = False
        self.entry: int | None = None
        self._secret = secret
        self._shard = shard
        self._epoch = epoch
        self._nonce = nonce(NONCE)
        self._hello = b""

    def begin(self) -> bytes:
        """Nothing: the other side begins."""
        return b""

    def take(self, frame: LinkFrame) -> bytes:
        """Take a frame; returns the answer.

        Raises:
            NotAuthenticated: the other side is not of the cluster.
            ProtocolViolation: the frame may not come now.
            ShardMoved: the other side looks for another owner.
            UnsupportedVersion: the other side speaks another version.
        """
        if frame.kind is Kind.HELLO and not self._hello:
            self._check(read_struct(frame.payload, _Hello))
            self._hello = encode(frame.kind, frame.id, frame.payload)
            proof = _proof(self._secret, b"owner", self._hello, self._nonce, self.binding)
            return encode_struct(Kind.CHALLENGE, 0, _Challenge(self._nonce, proof))
        if frame.kind is Kind.PROOF and self._hello:
            proof = _proof(self._secret, b"entry", self._hello, self._nonce, self.binding)
            if not hmac.compare_digest(frame.payload, proof):
                raise NotAuthenticated("a process that has connected as one of the cluster has not its secret")
            self.is_done = True
            return encode(Kind.READY)
        raise ProtocolViolation(f"the link frame {frame.kind.name} may not come now", command=frame.kind.name)

    def _check(self, hello: _Hello) -> None:
        if hello.version != LINK_VERSION:
            text = f"the link speaks version {hello.version}; this broker speaks {LINK_VERSION}"
            raise UnsupportedVersion(text, offered=str(hello.version), supported=[str(LINK_VERSION)])
        if len(hello.nonce) != NONCE:
            raise ProtocolViolation(f"HELLO of a link needs {NONCE} random bytes", command="HELLO")
        if (hello.owner, hello.epoch) != (self._shard, self._epoch()):
            raise ShardMoved(
                f"shard {hello.owner} with epoch {hello.epoch} is not here: this is shard {self._shard}",
                shard=hello.owner,
            )
        self.entry = hello.shard


def _proof(secret: bytes, role: bytes, hello: bytes, nonce: bytes, binding: bytes) -> bytes:
    said = b"".join([len(part).to_bytes(4) + part for part in (role, hello, nonce, binding)])
    return hmac.digest(secret, said, "sha256")
