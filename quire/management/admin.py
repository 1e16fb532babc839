"""The operator's door to a broker: one for each noun."""

from quire.broker.broker import Broker
from quire.management.bulk import BulkManagement
from quire.management.consumer_groups import ConsumerGroupManagement
from quire.management.queues import Management
from quire.management.schedule import ScheduleManagement
from quire.management.streams import StreamManagement
from quire.management.topics import TopicManagement
from quire.management.xa import XaManagement


class Admin:
    """What operators look at and change."""

    def __init__(self, broker: Broker) -> None:
        self.queues = Management(broker)
        self.topics = TopicManagement(self.queues)
        self.streams = StreamManagement(self.queues)
        self.groups = ConsumerGroupManagement(self.queues)
        self.schedule = ScheduleManagement(self.queues)
        self.xa = XaManagement(self.queues)
        self.writes = BulkManagement(self.queues)
