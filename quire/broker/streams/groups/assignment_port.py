"""What the coordinator of a consumer group wants of its group."""

from typing import Protocol


class AssignmentPort(Protocol):
    """What a coordinator tells its group.

    From within these calls the group may call ``drained``, and whatever only asks; everything else has to wait.
    """

    def assign(self, member_id: str, partition: int, epoch: int) -> None:
        """A connected member owns a partition from now on."""

    def revoke(self, member_id: str, partition: int) -> bool:
        """Give a member nothing new of a partition.

        Returns:
            True if it has nothing in flight there, so that it is no owner any more; else ``drained`` is called later.
        """

    def take_away(self, member_id: str, partition: int) -> None:
        """A member is no owner any more, without having drained: what it has in flight comes back."""

    def changed(self) -> None:
        """Members or owners have changed: what ``stored`` gives belongs into the open commit."""
