"""The API's producers: what is known of them, and how one is forgotten."""

from tests.unit.http.conftest import Api


def test_producers_are_listed_page_by_page(api: Api) -> None:
    for number in (1, 2, 3):
        api.stepped.broker.producers.take(f"p{number}", number * 10)
    api.stepped.run()
    first = api.call("GET", "/producers?limit=2").json()
    now = api.stepped.clock.now_ms()
    assert first["producers"] == [
        {"id": "p1", "sequence": 10, "last_sent": now}, {"id": "p2", "sequence": 20, "last_sent": now},
    ]  # fmt: skip
    rest = api.call("GET", f"/producers?limit=2&after={first['next']}").json()
    assert ([entry["id"] for entry in rest["producers"]], rest["next"]) == (["p3"], None)


def test_a_producer_is_forgotten(api: Api) -> None:
    api.stepped.broker.producers.take("a/b", 5)
    assert api.call("DELETE", "/producers/a%2Fb").json() == {"forgotten": "a/b"}
    assert api.call("GET", "/producers").json() == {"producers": [], "next": None, "total": 0}
    assert api.error("DELETE", "/producers/a%2Fb") == (404, "unknown-producer")


def test_metrics_tell_how_many_there_are(api: Api) -> None:
    api.stepped.broker.producers.take("p", 1)
    text = api.call("GET", "/metrics", base="").text
    assert "\nquire_producer_ids 1.0\n" in text
    assert "\nquire_producer_ids_limit 20000.0\n" in text
    assert "\nquire_producer_ids_forgotten_total 0.0\n" in text
