"""Every number that a request may have is in a range, so that none reaches the broker or a store that has no place."""

from collections.abc import Iterator

import msgspec
import pytest

from quire.http.app import ENDPOINTS
from quire.units import LARGEST
from tests.unit.http.conftest import Api

TOO_MUCH = {"negative": "-1", "one too many": str(LARGEST + 1), "no int64": str(1 << 64), "digits": "9" * 900}


def numbers(type_: msgspec.inspect.Type, name: str) -> Iterator[tuple[str, float | None, float | None]]:
    """The numbers in a type, each with its least and its greatest value."""
    match type_:
        case msgspec.inspect.StructType():
            for field in type_.fields:
                yield from numbers(field.type, f"{name}.{field.name}")
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            yield name, type_.ge if type_.gt is None else type_.gt, type_.le if type_.lt is None else type_.lt
        case msgspec.inspect.UnionType():
            for part in type_.types:
                yield from numbers(part, name)
        case msgspec.inspect.DictType():
            yield from numbers(type_.key_type, name + ".key")
            yield from numbers(type_.value_type, name)
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
            yield from numbers(type_.item_type, name)


def test_every_number_of_the_api_has_a_range() -> None:
    wanted = {row.query for row in ENDPOINTS} | {row.body for row in ENDPOINTS if row.body is not None}
    found = [found for type_ in wanted for found in numbers(msgspec.inspect.type_info(type_), type_.__name__)]
    assert len(found) > 30
    assert [name for name, least, most in found if least is None or most is None] == []
    assert [name for name, _, most in found if most is not None and most > LARGEST] == []


@pytest.mark.parametrize("number", TOO_MUCH.values(), ids=TOO_MUCH)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/streams/s/find?partition=0&offset={}"),
        ("GET", "/streams/s/find?partition={}&offset=1"),
        ("GET", "/streams/s/find?since={}"),
        ("GET", "/streams/s/find?until={}"),
        ("GET", "/streams/s/partitions/{}/messages"),
        ("GET", "/streams/s/partitions/0/messages?until={}"),
        ("GET", "/streams/s/partitions/0/messages?from={}"),
        ("GET", "/streams/s/partitions/0/messages?max_bytes={}"),
        ("GET", "/streams/s/offsets?start=offset%3D{}"),
        ("GET", "/streams/s/offsets?start=timestamp%3D{}"),
        ("GET", "/queues/q/messages?after={}"),
        ("GET", "/queues/q/messages?limit={}"),
        ("GET", "/schedule?after={}"),
        ("DELETE", "/schedule?earliest={}"),
        ("DELETE", "/schedule?latest={}"),
    ],
)
def test_a_number_out_of_its_range_is_refused(api: Api, method: str, path: str, number: str) -> None:
    api.call("PUT", "/streams/s", json={})
    api.call("PUT", "/queues/q")
    assert api.error(method, path.format(number)) == (400, "invalid-argument")


@pytest.mark.parametrize("number", TOO_MUCH.values(), ids=TOO_MUCH)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/queues/q/purge", '{"after": "1-%s"}'),
        ("/queues/q/purge", '{"after": "%s-1"}'),
        ("/queues/q/purge", '{"limit": %s}'),
        ("/streams/s/partitions", '{"count": %s}'),
    ],
)
def test_a_number_in_a_body_out_of_its_range_is_refused(api: Api, path: str, body: str, number: str) -> None:
    api.call("PUT", "/streams/s", json={})
    api.call("PUT", "/queues/q")
    assert api.error("POST", path, content=body % number) == (400, "invalid-argument")


def test_the_largest_number_is_an_answer_or_an_error_of_the_callers(api: Api) -> None:
    api.call("PUT", "/streams/s", json={})
    api.call("PUT", "/queues/q")
    for path in (
        f"/queues/q/messages?after={LARGEST}",
        f"/schedule?after={LARGEST}",
        f"/streams/s/find?until={LARGEST}",
    ):
        assert api.call("GET", path).status_code == 200
    assert api.error("GET", f"/streams/s/find?partition=0&offset={LARGEST}") == (404, "unknown-message")
