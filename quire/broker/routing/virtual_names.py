"""The names of virtual topics, and of the queues that they feed."""

from quire.destination import ADVISORIES
from quire.destination_pattern import Pattern
from quire.settings.keys import VirtualSettings


class VirtualNames:
    """Which topics are virtual, and which queues are named after one (section ``virtual`` of the settings)."""

    def __init__(self, settings: VirtualSettings) -> None:
        self._enabled = settings.virtual_topics
        self._topics = Pattern(settings.virtual_topic_pattern)
        self._prefix = Pattern(settings.virtual_topic_prefix + "x")
        self._prefix_parts = settings.virtual_topic_prefix.count(".")

    def is_virtual(self, topic: str) -> bool:
        """Whether a topic is virtual; advisory topics are not."""
        return self._enabled and self._topics.matches(topic) and not topic.startswith(ADVISORIES)

    def topic_of(self, queue: str) -> str | None:
        """The virtual topic that a queue is named after; None if there is none."""
        *parts, topic = queue.split(".", self._prefix_parts)
        named = len(parts) == self._prefix_parts and self._prefix.matches(".".join([*parts, "x"]))
        return topic if named and self.is_virtual(topic) else None
