"""The metrics of all shards of a broker in one text: each sample gets the label of its shard."""

from collections.abc import Iterator

STEP = 500
"""So many lines are taken at once: a millisecond, about."""


class JoinedMetrics:
    """Joins texts in the format of Prometheus: a family is written once, with the samples of all shards."""

    def __init__(self) -> None:
        self._families: dict[bytes, list[bytes]] = {}  # by the lines of their heads

    def add(self, shard: str, text: bytes) -> Iterator[None]:
        """Take the metrics of a shard, in steps.

        Args:
            shard: the value of the label.
        """
        label = f'shard="{shard}"'.encode()
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith(b"# HELP "):
                head = line
            elif line.startswith(b"# TYPE "):
                family = self._families.setdefault(head + b"\n" + line, [])
            elif line:
                family.append(_labelled(line, label))
            if number % STEP == 0:
                yield

    def pieces(self) -> Iterator[bytes]:
        """The text, in pieces."""
        for head, samples in self._families.items():
            yield head + b"\n"
            for start in range(0, len(samples), STEP):
                yield b"\n".join(samples[start : start + STEP]) + b"\n"


def _labelled(line: bytes, label: bytes) -> bytes:
    """A sample with one label more; the first brace of a line begins its labels, if it has any."""
    name, brace, rest = line.partition(b"{")
    if brace:
        return name + b"{" + label + b"," + rest
    name, _, value = line.partition(b" ")
    return name + b"{" + label + b"} " + value
