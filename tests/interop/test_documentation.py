"""The Java example of the page about OpenWire compiles, and prints what it says."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.brokers import Quire
from tests.interop.java_build import HERE, NoJavaTools, class_path

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(300)]

PAGE = HERE.parent.parent / "docs" / "openwire.md"


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```java\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    try:
        jars = class_path("client6", "java")
    except NoJavaTools as error:
        pytest.skip(str(error))
    broker = Quire(tmp_path)
    broker.start()
    try:
        assert "127.0.0.1:61616" in code
        (tmp_path / "Orders.java").write_text(code.replace("127.0.0.1:61616", broker.address))
        command = ["java", "-cp", jars, str(tmp_path / "Orders.java")]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (run.returncode, run.stdout) == (0, "two coffees\n"), run.stderr
    finally:
        broker.kill()
