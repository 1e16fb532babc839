"""The session of one broker passes the conformance suite of sessions."""

from typing import Any

from tests.conformance.sessions.consuming import Consuming
from tests.conformance.sessions.rig import LocalWorld, World
from tests.conformance.sessions.rules import Rules
from tests.conformance.sessions.settling import Settlements
from tests.conformance.sessions.transacting import Transacting


class TestRules(Rules):
    def world(self, **changes: Any) -> World:
        return LocalWorld(**changes)


class TestSettlements(Settlements):
    def world(self, **changes: Any) -> World:
        return LocalWorld(**changes)


class TestConsuming(Consuming):
    def world(self, **changes: Any) -> World:
        return LocalWorld(**changes)


class TestTransacting(Transacting):
    def world(self, **changes: Any) -> World:
        return LocalWorld(**changes)
