"""Who may read in bulk, as the broker knows it: it alone decides, and the bulk server asks."""

import hmac
import secrets

from quire.destination import DestinationKind
from quire.http.bulk.handshake import Question, Reply
from quire.security import Access, Action, Principal

MAX_READERS = 1000
"""How many readers are remembered; one that is forgotten asks for a token again."""


class Readers:
    """The users that have asked for the bulk server, each with a token for it.

    Attributes:
        secret: what signs tokens, so that the bulk server need not ask about those that were never given out.
    """

    def __init__(self) -> None:
        self.secret = secrets.token_hex(24)
        self._accesses: dict[str, Access] = {}
        self._numbers: dict[Principal, str] = {}

    def token_of(self, access: Access) -> str:
        """A token for the bulk server; for a user always the same one while the login is valid."""
        principal = access.principal
        number = self._numbers.get(principal)
        if number is None or self._accesses[number].ended:
            while len(self._accesses) >= MAX_READERS:
                self._forget(next(iter(self._accesses)))
            if number is not None:
                self._forget(number)
            number = self._numbers[principal] = secrets.token_hex(8)
            self._accesses[number] = access
        return signed(self.secret, number)

    def reply(self, question: Question) -> Reply:
        """Which destinations a reader may read, of a few hundred at the most; none for one that must log in again."""
        access = self._accesses.get(question.reader)
        if access is None or access.ended:
            return Reply(question.number)
        wanted = [destination.partition("://") for destination in question.destinations]
        return Reply(
            question.number, [access.allows(Action.READ, DestinationKind(kind), name) for kind, _, name in wanted]
        )

    def _forget(self, number: str) -> None:
        del self._accesses[number]
        self._numbers = {principal: known for principal, known in self._numbers.items() if known != number}


def signed(secret: str, number: str) -> str:
    """The token of a reader with this number."""
    return f"{number}.{hmac.digest(secret.encode(), number.encode(), 'sha256').hex()}"
