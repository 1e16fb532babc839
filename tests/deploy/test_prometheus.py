"""The alert rules and the board: in promtool, and in a real Prometheus that scrapes a real broker."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.crash.broker_process import BrokerProcess
from tests.deploy.conftest import DEPLOY, Prometheus, Stomp, program, run, wait_for

RULES = DEPLOY / "prometheus"
METRICS_PAGES = [Path(__file__).parents[2] / "docs" / "reference" / f"{page}.md" for page in ("metrics", "resources")]


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((RULES / "quire.rules.yml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def board_expressions() -> list[str]:
    board = json.loads((DEPLOY / "grafana" / "quire.json").read_text(encoding="utf-8"))
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]


def filled(expression: str) -> str:
    """An expression of the board, as Grafana sends it."""
    filled = expression.replace("$instance", ".*").replace("$queue", ".*").replace("$__rate_interval", "1m")
    assert "$" not in filled
    return filled


def test_every_metric_of_rules_and_board_is_one_of_the_broker() -> None:
    known = set(re.findall(r"`((?:quire|process)_\w+)`", "".join([page.read_text("utf-8") for page in METRICS_PAGES])))
    used = {
        name
        for expression in [*[rule["expr"] for rule in rules()], *board_expressions()]
        for name in re.findall(r"\b((?:quire|process)_\w+)", expression)
    }
    assert used
    assert used <= known


def test_every_rule_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    tests = yaml.safe_load((RULES / "quire.rules.test.yml").read_text(encoding="utf-8"))["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in rules()}
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == names
    silent = {case["alertname"] for case in cases if not case.get("exp_alerts")}
    assert names - silent <= {"QuireMemory"}  # its other condition is a queue that waits


def test_every_rule_says_what_is_wrong_how_bad_it_is_and_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "action"}


@pytest.mark.slow
def test_promtool_accepts_the_rules_and_every_rule_fires() -> None:
    promtool = program("promtool")
    assert "21 rules found" in run(promtool, "check", "rules", "quire.rules.yml", cwd=RULES)
    assert "is valid" in run(promtool, "check", "config", "prometheus.yml", cwd=RULES)
    assert "SUCCESS" in run(promtool, "test", "rules", "quire.rules.test.yml", cwd=RULES)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, settings={"STORE__LIMIT": "100kB", "POLICY__MAXIMUM_REDELIVERIES": "0"})
    process.start()
    process.port()
    try:
        yield process
    finally:
        process.kill()


def quick_config(directory: Path, broker: BrokerProcess) -> Path:
    """The files of ``deploy``, with a fast clock: what takes minutes there takes a second here."""
    text = (RULES / "quire.rules.yml").read_text(encoding="utf-8")
    (directory / "quire.rules.yml").write_text(re.sub(r"for: \w+", "for: 1s", text))
    config = yaml.safe_load((RULES / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [broker.http.removeprefix("http://")]
    file = directory / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    return file


@pytest.fixture
def stomp(broker: BrokerProcess) -> Iterator[Stomp]:
    client = Stomp(broker.port())
    yield client
    client.close()


@pytest.mark.slow
def test_a_real_prometheus_scrapes_a_real_broker_and_alerts(
    tmp_path: Path, broker: BrokerProcess, stomp: Stomp, start_prometheus: Callable[[Path], Prometheus]
) -> None:
    prometheus = start_prometheus(quick_config(tmp_path, broker))
    wait_for(lambda: prometheus.query('up{job="quire"} == 1'), "the broker is scraped")
    assert {rule["alert"] for rule in rules()} == {
        rule["name"] for group in prometheus.get("rules")["groups"] for rule in group["rules"]
    }
    stomp.send("SUBSCRIBE", {"id": "0", "destination": "/queue/failing", "ack": "client-individual"})
    stomp.send("SEND", {"destination": "/queue/failing"}, "body")
    message = stomp.receive()
    wait_for(lambda: prometheus.query('quire_queue_messages{queue="failing"} == 1'), "the queue is scraped")
    stomp.send("NACK", {"id": message["ack"]})
    for _ in range(200):
        stomp.send("SEND", {"destination": "/queue/deep"}, "x" * 1000)
    expected = {"QuireNoConsumers", "QuireDeadLetters", "QuireProducersHeld", "QuireProducersHeldLong"}
    wait_for(lambda: expected <= prometheus.firing(), f"{expected} fire")
    for expression in board_expressions():
        prometheus.query(filled(expression))  # a wrong one is an error
    shown = [expression for expression in board_expressions() if prometheus.query(filled(expression))]
    assert len(shown) > len(board_expressions()) / 2
    broker.kill()
    wait_for(lambda: "QuireAbsent" in prometheus.firing(), "QuireAbsent fires")
