"""One archive with all that executors of a cluster need to read and write messages: ``quire pipeline package``.

It has packages and no Python: executors run their own, of the same version, and find the packages by ``PYTHONPATH``.
"""

import platform
import shlex
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import quire
from quire.errors import InvalidArgument, UnsupportedEnvironment
from quire.spark import pipelines

DIRECTORY = "quire-packages"  # the name of the directory that executors unpack the archive to
DISTRIBUTIONS = (
    "lmdb", "msgspec", "numpy", "psycopg", "psycopg-binary", "pyarrow", "SQLAlchemy", "typing_extensions",
)  # fmt: skip
"""What tasks import beside Quire; PySpark is there on every executor."""

OWN_PACKAGES = ("quire", "pyspark_quire")

_LEFT_OUT = ("tests", "include", "__pycache__", "bin", "..")  # directories that no task needs
_CHECK = """\
# Executors run it first: packages with compiled parts are for one version of Python.
import platform
import sys

WANTED = {wanted!r}
FOUND = f"Python {{sys.version_info[0]}}.{{sys.version_info[1]}} on {{sys.platform}} {{platform.machine()}}"
if FOUND != WANTED:
    sys.exit(
        f"the archive of quire pipeline package is for {{WANTED}}, and {{sys.executable}} is {{FOUND}}: "
        "make an archive with that version, or let spark.pyspark.python name another one"
    )
"""


def wanted_python() -> str:
    return f"Python {sys.version_info[0]}.{sys.version_info[1]} on {sys.platform} {platform.machine()}"


def make_package(file: Path) -> None:
    """Write the archive.

    Raises:
        UnsupportedEnvironment: a package is not installed here.
        InvalidArgument: the file cannot be written.
    """
    found = [*_own(), *[pair for name in DISTRIBUTIONS for pair in _installed(name)]]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # The fastest compression: executors unpack it once each.
        with ZipFile(file, "w", ZIP_DEFLATED, compresslevel=1) as archive:
            for path, name in found:
                archive.write(path, name)
            archive.writestr("sitecustomize.py", _CHECK.format(wanted=wanted_python()))
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be written: {error.strerror}", file=str(file)) from error


def submit_lines(file: Path) -> str:
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    program = Path(pipelines.__file__).parent / "audit.py"
    return (
        f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH" PYSPARK_PYTHON={python}\n'
        "spark-submit --master spark://MASTER:7077 \\\n"
        f"  --archives {shlex.quote(f'{file.absolute()}#{DIRECTORY}')} \\\n"
        f"  --conf spark.executorEnv.PYTHONPATH={DIRECTORY} \\\n"
        f"  {shlex.quote(str(program))} --url http://BROKER:8161 --drained"
    )


def _own() -> Iterator[tuple[Path, str]]:
    """Quire's own files, wherever they are: an editable installation has no list of them."""
    root = Path(quire.__file__).parents[1]
    for package in OWN_PACKAGES:
        for path in sorted((root / package).rglob("*")):
            name = path.relative_to(root)
            if path.is_file() and "__pycache__" not in name.parts:
                yield path, str(name)


def _installed(name: str) -> Iterator[tuple[Path, str]]:
    try:
        files = distribution(name).files or []
    except PackageNotFoundError as error:
        text = f"{name} is not installed, and the archive needs it: pip install 'quire[spark]'"
        raise UnsupportedEnvironment(text, module=name) from error
    for file in files:
        if not set(_LEFT_OUT) & set(file.parts[:-1]):
            yield Path(str(file.locate())), str(file)
