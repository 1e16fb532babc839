"""Who may read in bulk: the broker decides, the bulk server asks and remembers."""

import asyncio

import pytest

from quire.http.bulk.readers import AT_ONCE, MAX_READERS, Question, Readers, Rights, UnknownReader, signed
from quire.security import Access, Origin
from tests.unit.http.conftest import Api
from tests.unit.http.test_access import secured

ORIGIN = Origin("http", "127.0.0.1:1")


class Pipe:
    """A broker's ``Readers`` and a bulk server's ``Rights``, with every question counted."""

    def __init__(self) -> None:
        self.readers = Readers()
        self.asked: list[Question] = []
        self.rights = Rights(self.readers.secret, self._ask)

    def _ask(self, question: Question) -> None:
        self.asked.append(question)
        asyncio.get_running_loop().call_soon(self.rights.answered, self.readers.reply(question))

    def readable(self, token: str, *destinations: str) -> set[str]:
        """What a reader with a token may read."""

        async def read() -> set[str]:
            return await self.rights.readable(self.rights.reader_of(token), destinations)

        return asyncio.run(read())


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


def access(api: Api, name: str) -> Access:
    """That of a user of ``secured``."""
    return api.service.security.vouched(name, [name], ORIGIN)


def test_each_reader_reads_what_the_rules_allow(api: Api, pipe: Pipe) -> None:
    secured(api)
    both = ("queue://q", "stream://other")
    expected = {"read": {both[0]}, "write": set(), "denied": {both[1]}, "administrator": set(both)}
    for name, readable in expected.items():
        assert pipe.readable(pipe.readers.token_of(access(api, name)), *both) == readable, name


def test_without_users_everything_is_read(api: Api, pipe: Pipe) -> None:
    token = pipe.readers.token_of(api.service.security.vouched("", [], ORIGIN))
    assert pipe.readable(token, "stream://$quire.ledger") == {"stream://$quire.ledger"}


def test_the_broker_is_asked_once_and_again_after_a_change(api: Api, pipe: Pipe) -> None:
    token = pipe.readers.token_of(api.service.security.vouched("", [], ORIGIN))
    names = [f"queue://q{number}" for number in range(AT_ONCE + 1)]
    for _ in range(2):
        assert pipe.readable(token, *names) == set(names)
    assert [len(question.destinations) for question in pipe.asked] == [AT_ONCE, 1]
    secured(api)
    pipe.rights.changed()
    with pytest.raises(UnknownReader):  # who has not logged in has to, now that there are users
        pipe.readable(token, *names)


def test_an_answer_that_a_change_overtakes_is_not_remembered(api: Api, pipe: Pipe) -> None:
    token = pipe.readers.token_of(api.service.security.vouched("", [], ORIGIN))

    async def read() -> None:
        asked = asyncio.create_task(pipe.rights.readable(pipe.rights.reader_of(token), ["queue://q"]))
        await asyncio.sleep(0)
        pipe.rights.changed()
        await asked

    asyncio.run(read())
    pipe.readable(token, "queue://q")
    assert len(pipe.asked) == 2


@pytest.mark.parametrize("token", ["", ".", "1", "1.", "é.x", signed("another secret", "1")])
def test_what_the_broker_did_not_sign_is_no_token(pipe: Pipe, token: str) -> None:
    with pytest.raises(UnknownReader):
        pipe.readable(token, "queue://q")
    assert not pipe.asked


def test_a_user_keeps_its_token_and_many_users_do_not_fill_the_memory(api: Api, pipe: Pipe) -> None:
    secured(api)
    token = pipe.readers.token_of(access(api, "read"))
    assert pipe.readers.token_of(access(api, "read")) == token
    for number in range(MAX_READERS):
        pipe.readers.token_of(api.service.security.vouched(f"user{number}", [], ORIGIN))
    with pytest.raises(UnknownReader):
        pipe.readable(token, "queue://q")
    assert pipe.readable(pipe.readers.token_of(access(api, "read")), "queue://q") == {"queue://q"}
