"""The links of chosen records, read without their bodies."""

from collections.abc import Iterator

from quire.cursors.spool import Spool
from quire.store.base import LaneReader, Link

GAP = 32
"""Records that are so near to each other are read together, with what is between them."""


def found_links(source: LaneReader | Spool, lane: int, sequences: list[int]) -> list[Link]:
    """The links of those records that are there."""
    found: list[Link] = []
    for run in _runs(sequences):
        wanted, last = set(run), run[-1]
        links = source.links(lane, run[0], last - run[0] + 1)
        found += [link for link in links if link.sequence in wanted]
    return found


def _runs(sequences: list[int]) -> Iterator[list[int]]:
    """Split sequences where there is much between two of them."""
    run: list[int] = []
    for sequence in sequences:
        if run and sequence - run[-1] > GAP:
            yield run
            run = []
        run.append(sequence)
    if run:
        yield run
