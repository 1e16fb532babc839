"""A spool that is empty gives the space of its files back to the disk."""

import pytest

from quire.cursors.spool import SHRINK_BYTES, Spool
from quire.errors import StoreError
from quire.store.memory import MemoryStore
from quire.testing.store_model import make_message


class WornStore(MemoryStore):
    """A store with much space left free in its files, until it is made new.

    Attributes:
        inside: that space.
        renewals: how often it was made new.
        is_broken: whether that fails.
    """

    def __init__(self) -> None:
        super().__init__()
        self.open()
        self.inside = SHRINK_BYTES + 1
        self.renewals = 0
        self.is_broken = False

    def free(self) -> int:
        return self.inside

    def renew(self) -> None:
        self.close()
        if self.is_broken:
            raise StoreError("the disk is broken")
        self.renewals += 1
        self.inside = 0
        self.open()


def test_it_is_made_new_when_its_last_message_goes() -> None:
    store = WornStore()
    spool = Spool(store, 1 << 20, store.renew)
    spool.append(1, [make_message(1), make_message(2)])
    spool.remove(1, [1])
    assert store.renewals == 0
    spool.remove(1, [2])
    assert store.renewals == 1
    spool.append(1, [make_message(3)])
    assert [message.sequence for message in spool.load(1, [3])] == [3]


def test_a_little_free_space_stays() -> None:
    store = WornStore()
    store.inside = SHRINK_BYTES
    spool = Spool(store, 1 << 20, store.renew)
    spool.append(1, [make_message(1)])
    spool.remove(1, [1])
    assert store.renewals == 0


def test_if_it_cannot_be_made_new_the_next_write_tries_again() -> None:
    store = WornStore()
    spool = Spool(store, 1 << 20, store.renew)
    spool.append(1, [make_message(1)])
    store.is_broken = True
    with pytest.raises(StoreError):
        spool.remove(1, [1])
    with pytest.raises(StoreError):
        spool.append(1, [make_message(2)])
    store.is_broken = False
    spool.append(1, [make_message(2)])
    assert (store.renewals, spool.used) == (1, make_message(2).size)
