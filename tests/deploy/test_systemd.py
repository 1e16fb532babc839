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
    assert unit["ExecStart"].endswith("broker start --config ${CREDENTIALS_DIRECTORY}/quire.toml --data /var/lib/quire")


def test_root_alone_can_read_the_settings_and_keys_of_the_unit() -> None:
    """The user of the broker is made at each start: without credentials, its files would have to be open to all."""
    unit = service()
    assert (unit["DynamicUser"], unit["ConfigurationDirectoryMode"], unit["UMask"]) == ("yes", "0700", "0077")
    assert unit["LoadCredential"] == "quire.toml:/etc/quire/quire.toml"
    assert "/etc/" not in unit["ExecStart"]
    assert "ExecReload" not in unit  # it would read again what was handed over at the start


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
