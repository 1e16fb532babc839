"""Who has owned the partitions of a stream, as the members of a group saw it."""


class OwnerLog:
    """Watches deliveries to the members of a group.

    Attributes:
        two_owners: deliveries under an epoch under which another member had got something of the same partition.
        old_epochs: deliveries of a partition under an earlier epoch than the one before.
    """

    def __init__(self, partitions: int) -> None:
        self._owners: list[dict[int, str]] = [{} for _ in range(partitions)]
        self.two_owners = 0
        self.old_epochs = 0

    @property
    def moves(self) -> int:
        """How often partitions went to another member, or to the same one under another epoch."""
        return sum(max(0, len(owners) - 1) for owners in self._owners)

    def delivered(self, member: str, partition: int, epoch: int) -> None:
        """A message has come, under the assignment with this number."""
        owners = self._owners[partition]
        self.two_owners += owners.setdefault(epoch, member) != member
        self.old_epochs += epoch < max(owners)
