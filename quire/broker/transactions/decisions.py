"""Decisions about transactions with parts at several shards, for which this shard is the coordinator; their names.

The other participants have prepared their branches before. The decision to commit is a mark, ``decision/...``, stored
in the same commit as the coordinator's own part: so there is no decision without the part, and no part without the
decision. What is neither decided nor enlisted is rolled back, and never will be decided (*presumed abort*): a
transaction is enlisted before any branch of it is prepared.

A branch has the name that X/Open XA gives it (section 4.2, ``Xid``).
"""

import logging
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import msgspec

from quire.broker.core.core import Core, MarksOwner, MarksPart
from quire.errors import InvalidArgument, StoreCorrupt, UnknownTransaction
from quire.logs import event
from quire.store.base import walk_marks

MAX_PART = 64
"""The longest global id and the longest branch id, in bytes."""

_TEXT = re.compile(r"([0-9a-f]{8})-((?:[0-9a-f]{2})+)-((?:[0-9a-f]{2})*)")


@dataclass(frozen=True, slots=True)
class Xid:
    """One branch's name. As text it is in hexadecimal digits: ``00000037-6f7264657273-01``.

    Attributes:
        format_id: whose names these are; a whole number of 32 bits with a sign.
        global_id: the transaction's id, 1 to 64 bytes.
        branch_id: the branch's id, 64 bytes at most.
    """

    format_id: int
    global_id: bytes
    branch_id: bytes

    def __post_init__(self) -> None:
        fits = 0 < len(self.global_id) <= MAX_PART and len(self.branch_id) <= MAX_PART
        if not fits or not -(1 << 31) <= self.format_id < 1 << 31:
            raise InvalidArgument(
                f"a global id has 1 to {MAX_PART} bytes, a branch id at most {MAX_PART}, a format id 32 bits",
                argument="xid",
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        found = _TEXT.fullmatch(text)
        if found is None:
            raise InvalidArgument(f"{text[:60]!r} is not an xid: write it as `quire xa ls` shows it", argument="xid")
        number = int(found[1], 16)
        return cls(number - (number >> 31 << 32), bytes.fromhex(found[2]), bytes.fromhex(found[3]))

    def __str__(self) -> str:
        return f"{self.format_id & 0xFFFFFFFF:08x}-{self.global_id.hex()}-{self.branch_id.hex()}"


FORMAT = 0x51756972
"""The format id of their branches: clients may not use it."""

_PACKED = struct.Struct(">HQ16s")
_NUMBER = struct.Struct(">H")


class SpanningId(NamedTuple):
    """One transaction.

    Attributes:
        shard: its coordinator: the shard that stores the decision with its own part.
        epoch: of the owner of this shard, when the transaction was enlisted there.
        token: 16 bytes that no other transaction has.
    """

    shard: int
    epoch: int
    token: bytes

    def branch(self, number: int) -> Xid:
        return Xid(FORMAT, _PACKED.pack(*self), _NUMBER.pack(number))

    @classmethod
    def of(cls, xid: Xid) -> tuple[Self, int]:
        if xid.format_id != FORMAT or len(xid.global_id) != _PACKED.size or len(xid.branch_id) != _NUMBER.size:
            raise InvalidArgument(f"{xid} is no branch of a transaction over several shards", argument="xid")
        return cls(*_PACKED.unpack(xid.global_id)), _NUMBER.unpack(xid.branch_id)[0]

    @classmethod
    def parse(cls, text: str) -> Self:
        try:
            return cls(*_PACKED.unpack(bytes.fromhex(text)))
        except (ValueError, struct.error):
            raise InvalidArgument(f"{text[:60]!r} names no transaction over several shards", argument="id") from None

    def __str__(self) -> str:
        return _PACKED.pack(*self).hex()


PREFIX = "decision/"
"""What the keys of their marks begin with."""


class Enlisted(Protocol):
    @property
    def is_closed(self) -> bool:
        """Whether it is over."""


class Participant(msgspec.Struct, array_like=True, frozen=True):
    """Where a branch is: its shard, and the epoch of the shard's owner that has prepared the branch."""

    shard: int
    epoch: int


class Decision:
    """A transaction that is committed.

    Attributes:
        participants: all but the coordinator.
        open: the numbers of those that have not said that they have committed.
        is_stored: whether the decision is durable: until then participants are not told of it.
    """

    __slots__ = ("is_stored", "open", "participants", "then")

    def __init__(
        self, participants: list[Participant], then: Callable[[], None] = lambda: None, *, is_stored: bool = False
    ) -> None:
        self.participants = participants
        self.open = dict.fromkeys(range(len(participants)))
        self.is_stored = is_stored
        self.then = then


class Decisions(MarksOwner[dict[SpanningId, Decision]]):
    """The decisions of one shard that not all participants are known to have carried out.

    Attributes:
        open: by transaction, the oldest first.
        stored: is called with a decision once it is durable.
    """

    stored: Callable[[SpanningId, Decision], None]

    def __init__(self, core: Core) -> None:
        super().__init__(core, dict)
        self.open: dict[SpanningId, Decision] = {}
        self._enlisted: dict[SpanningId, Enlisted] = {}
        with core.store.snapshot() as reader:
            for key, value in walk_marks(reader, PREFIX):
                self._load(key, value)

    def _load(self, key: str, value: bytes) -> None:
        try:
            id, participants = SpanningId.parse(key.removeprefix(PREFIX)), _read(key, value)
        except (InvalidArgument, StoreCorrupt) as damage:
            text = f"a decision about a transaction cannot be read and is ignored: {damage} The store keeps {key}."
            event("transaction.damaged", text, logging.ERROR, key=key)
            return
        self.open[id] = Decision(participants, is_stored=True)

    def enlist(self, id: SpanningId, session: Enlisted) -> None:
        """A transaction has a part here, and is to be decided here. Only after this may branches of it be prepared."""
        self._enlisted[id] = session

    def check(self, id: SpanningId, session: Enlisted) -> None:
        if self._enlisted.get(id) is not session:
            raise UnknownTransaction(f"the transaction {id} is not enlisted here", transaction=str(id))

    def decide(self, id: SpanningId, participants: list[Participant], then: Callable[[], None]) -> None:
        """Decide to commit, with the open commit, which has this shard's own part too. ``check`` has passed.

        Args:
            then: is called once all participants have committed.
        """
        del self._enlisted[id]
        self.open[id] = self.part.changes[id] = Decision(participants, then)
        self._core.set_mark(_key(id), msgspec.msgpack.encode(participants))
        self._core.list_part(self.part)
        self._core.hurry()

    def may_commit(self, id: SpanningId) -> bool:
        """Whether a transaction is committed, or may still be; if not, it never will be."""
        session = self._enlisted.get(id)
        return id in self.open or (session is not None and not session.is_closed)

    def done(self, id: SpanningId, number: int, epoch: int) -> None:
        """A participant has committed its branch.

        Args:
            epoch: of the owner of its shard that says so. One before that which has prepared knows nothing of it.
        """
        decision = self.open.get(id)
        if decision is None or number not in decision.open or epoch < decision.participants[number].epoch:
            return
        del decision.open[number]
        if not decision.open:
            del self.open[id]
            self._core.set_mark(_key(id), None)
            decision.then()

    def forget_closed(self) -> None:
        if self._enlisted:
            self._enlisted = {id: session for id, session in self._enlisted.items() if not session.is_closed}

    # Commits.

    def committed(self, part: MarksPart[dict[SpanningId, Decision]]) -> None:
        for id, decision in part.changes.items():
            decision.is_stored = True
            self.stored(id, decision)

    def commit_failed(self, part: MarksPart[dict[SpanningId, Decision]], restored: set[int]) -> None:
        """A commit failed: what it decided is not decided, as the coordinator's own part is not committed."""
        for id in part.changes:
            del self.open[id]
            self._core.set_mark(_key(id), None)


def _key(id: SpanningId) -> str:
    return f"{PREFIX}{id}"


def _read(key: str, value: bytes) -> list[Participant]:
    try:
        return msgspec.msgpack.decode(value, type=list[Participant])
    except msgspec.DecodeError as error:
        raise StoreCorrupt(f"the mark {key} of a decision cannot be read: {error}", key=key) from error
