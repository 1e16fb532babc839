"""What a pull needs of a member with a prefetch of 0."""

from collections.abc import Callable

from quire.broker.streams.groups.member import GroupMember


class MemberPull:
    """A member as a consumer that asks for messages (``Puller``).

    Args:
        id: the consumer's.
        member: the member.
        nothing_came: tells the client that there was no message.
    """

    prefetch = 0

    def __init__(self, id: str, member: GroupMember, nothing_came: Callable[[], None]) -> None:
        self.id = id
        self._member = member
        self._nothing_came = nothing_came

    @property
    def pulled(self) -> int:
        """How many messages it may still be given of those it asked for."""
        return self._member.pulled

    @pulled.setter
    def pulled(self, count: int) -> None:
        self._member.pulled = count

    def wake(self) -> None:
        """It may be given messages at the end of this turn."""
        self._member.wake()

    def look(self) -> None:
        """Be given now what there is."""
        self._member.look()

    def nothing_came(self) -> None:
        """A pull ended without a message: its client is told."""
        self._nothing_came()
