"""The measure of takeovers: what it finds in the record of owners, and what its table says."""

import pytest

from benchmarks.takeover.pair import is_commit
from benchmarks.takeover.rounds import Commits, Note, Outage, ends_well
from benchmarks.takeover.run import table


def history(*notes: tuple[int, int, str, int, int, str]) -> Commits:
    """What is found in a record of: epoch, commit, name, the owner's process of the server, the writing one, kind."""
    commits = Commits()
    for number, note in enumerate(notes, 1):
        commits.take(Note(number, *note))
    return commits


TAKEN = (1, 0, "a", 11, 11, "epoch")
FIRST = (1, 1, "a", 11, 11, "commit")


def test_owners_one_after_the_other_are_right() -> None:
    found = history(
        TAKEN, FIRST, (1, 1, "a", 11, 12, "lease"), (2, 1, "a", 13, 13, "epoch"), (2, 2, "a", 13, 13, "commit"),
        (3, 2, "b", 21, 21, "epoch"), (3, 3, "b", 21, 21, "commit"),
    )  # fmt: skip
    assert found.violations == []
    assert (found.commits, found.epochs, found.decided, found.owners) == (3, 3, 1, 2)


@pytest.mark.parametrize(
    ("note", "says"),
    [
        ((2, 2, "b", 21, 11, "commit"), "two owners"),
        ((1, 2, "a", 11, 11, "commit"), "epoch 1 comes after 2"),
        ((2, 3, "b", 21, 21, "commit"), "commit 3 comes after 1"),
        ((2, 1, "b", 21, 21, "commit"), "commit 1 comes after 1"),
        ((3, 0, "a", 31, 31, "epoch"), "begins with commit 0 after 1"),
    ],
)
def test_what_cannot_be_with_one_owner_is_found(note: tuple[int, int, str, int, int, str], says: str) -> None:
    (violation,) = history(TAKEN, FIRST, (2, 1, "b", 21, 21, "epoch"), note).violations
    assert says in violation


def test_table_has_each_kind_with_its_times() -> None:
    outages = [Outage("kill", seconds, True) for seconds in (3.0, 1.0, 2.0)] + [Outage("stop", 0.25, False)]
    assert table(outages).splitlines()[2:] == [
        "| kill | 3 | 3 | 1.00 s | 2.00 s | 3.00 s | 3.00 s |",
        "| stop | 1 | 0 | 0.25 s | 0.25 s | 0.25 s | 0.25 s |",
    ]


def test_commit_is_known_by_its_message() -> None:
    """Values for a statement, in the protocol of PostgreSQL: the portal has no name, the statement has."""
    assert is_commit(b"B\0\0\0\x20\0quire_12\0\0\0")
    assert not is_commit(b"P\0\0\0\x20quire_12\0WITH fence")
    assert not is_commit(b"B\0\0\0\x20\0\0\0\0")


def test_a_takeover_has_its_limit() -> None:
    assert ends_well(Outage("stop", 0.9, True))
    assert not ends_well(Outage("stop", 1.1, True))
    assert not ends_well(Outage("kill", 5.1, True))
