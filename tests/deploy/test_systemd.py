"""The unit of systemd, as far as it can be checked where systemd does not run."""

import configparser
import re
from pathlib import Path

import pytest

from tests.deploy.conftest import DEPLOY, program, run

UNIT = DEPLOY / "systemd" / "quire.service"

EXPOSURE = 20
"""The highest exposure that is accepted, in tenths: systemd calls up to 2.0 OK."""


def service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser["Service"]


def test_the_unit_uses_what_the_broker_offers() -> None:
    unit = service()
    assert unit["Type"] == "notify"  # the broker tells READY=1
    assert 10 <= int(unit["WatchdogSec"]) <= 60
    assert unit["RestartPreventExitStatus"] == "2"  # wrong settings
    assert unit["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert re.search(r"broker start --config /etc/quire/quire.toml --data /var/lib/quire$", unit["ExecStart"])


@pytest.mark.slow
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    here = tmp_path / "quire.service"  # systemd looks whether the program is there
    here.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/quire/bin/quire", "/bin/true"))
    assert run(analyze, "verify", str(here)).strip() == ""


@pytest.mark.slow
def test_the_unit_is_hardened() -> None:
    told = run(program("systemd-analyze"), "security", "--offline=true", f"--threshold={EXPOSURE}", str(UNIT))
    found = re.search(r"Overall exposure level for quire.service: (\d\.\d)", told)
    assert found is not None
    assert float(found[1]) * 10 <= EXPOSURE
