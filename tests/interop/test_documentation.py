"""The Java examples of the page about OpenWire compile, and print what they send."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.brokers import Quire
from tests.interop.java_build import HERE, NoJavaTools, class_path

pytestmark = pytest.mark.slow

PAGE = HERE.parent.parent / "docs" / "openwire.md"


def examples() -> dict[str, str]:
    """The examples of the page by the names of their classes."""
    codes = re.findall(r"```java\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return {re.findall(r"public class (\w+)", code)[0]: code for code in codes}


def test_the_page_has_examples() -> None:
    assert list(examples()) == ["Orders", "Billing"]


@pytest.mark.parametrize(("name", "printed"), [("Orders", "two coffees\n"), ("Billing", "two coffees 1\n")])
def test_the_examples_of_the_page_run(tmp_path: Path, name: str, printed: str) -> None:
    code = examples()[name]
    try:
        jars = class_path("client6", "java")
    except NoJavaTools as error:
        pytest.skip(str(error))
    broker = Quire(tmp_path)
    broker.start()
    try:
        assert "127.0.0.1:61616" in code
        (tmp_path / f"{name}.java").write_text(code.replace("127.0.0.1:61616", broker.address))
        command = ["java", "-cp", jars, str(tmp_path / f"{name}.java")]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (run.returncode, run.stdout) == (0, printed), run.stderr
    finally:
        broker.kill()
