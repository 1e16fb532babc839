"""The Java programs of these tests: jars from Maven and classes from the sources, kept in ``build/interop``."""

import fcntl
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "interop"

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_JAVA_VERSION = 17


class NoJavaTools(Exception):
    """There is no JDK or no Maven here, or Maven cannot get the jars."""


def class_path(pom: str, sources: str) -> str:
    """Get the jars of a pom, and compile the sources of a directory with them, unless both was done before.

    Args:
        pom: a directory of ``poms``; its name ends with the line of ActiveMQ, 5 or 6.
        sources: a directory with Java sources. They use ``javax.jms``, which is ``jakarta.jms`` in line 6.

    Returns:
        What ``java -cp`` needs.

    Raises:
        NoJavaTools: that cannot be done here.
    """
    require_tools()
    jars = jars_of(HERE / "poms" / pom / "pom.xml")
    texts = {path.name: path.read_text() for path in sorted((HERE / sources).glob("*.java"))}
    if pom.endswith("6"):
        texts = {name: text.replace("javax.jms", "jakarta.jms") for name, text in texts.items()}
    classes = BUILD / f"{sources}-{pom}-{_hash(jars.name, *texts.values())}"
    if not classes.exists():
        _compile(texts, f"{jars}/*", classes)
    return f"{jars}/*:{classes}"


def require_tools() -> None:
    for program in ("java", "javac", "mvn"):
        if not shutil.which(program):
            raise NoJavaTools(f"{program} is not installed: scripts/setup-tests.sh installs it where that is possible")
    answer = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=False)
    version = re.match(r"javac (\d+)", answer.stdout)
    if not version or int(version[1]) < _JAVA_VERSION:
        raise NoJavaTools(f"javac is not version {_JAVA_VERSION} or newer: {answer.stdout}{answer.stderr}")


def jars_of(pom: Path) -> Path:
    jars = BUILD / f"jars-{pom.parent.name}-{_hash(pom.read_text())}"
    with _maven_turn():
        if jars.exists():
            return jars
        with _becomes(jars) as directory:
            command = ["mvn", "-B", "-ntp", "-f", str(pom), _PLUGIN, f"-DoutputDirectory={directory}"]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode:
                errors = [line for line in run.stdout.splitlines() if line.startswith("[ERROR]")]
                raise NoJavaTools(f"Maven cannot get the jars of {pom.parent.name}: {' '.join(errors[:2])}")
    return jars


def _compile(texts: dict[str, str], jars: str, classes: Path) -> None:
    with tempfile.TemporaryDirectory() as sources, _becomes(classes) as directory:
        for name, text in texts.items():
            (Path(sources) / name).write_text(text)
        files = [str(path) for path in Path(sources).glob("*.java")]
        command = ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", jars, "-d", str(directory), *files]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, f"the Java programs do not compile:\n{run.stderr}"


@contextmanager
def _maven_turn() -> Iterator[None]:
    """One process at a time has Maven download into the repository of the user, which is not made for two."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "maven.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _becomes(path: Path) -> Iterator[Path]:
    """A temporary directory that gets its name when it is complete, so that half of it is never taken for the whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        made = Path(directory) / "made"
        made.mkdir()
        yield made
        try:
            made.rename(path)
        except OSError:
            if not path.exists():  # or another run was faster
                raise


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
