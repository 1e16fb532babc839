"""Pictures of the reports for the docs: ``python -m tests.spark.report_pictures``; ``make screenshots`` does it too.

The pipelines make them, of data that is generated. They are looked at as on a desktop and as on a telephone.
"""

import io
import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner
from PIL import Image
from playwright.sync_api import Browser

import quire.spark
from quire.cli.main import main as quire_command
from quire.clock import SystemClock
from tests.acceptance.console.chromium import MISSING, PROGRAM, chromium
from tests.spark import report_data

IMAGES = Path(__file__).parents[2] / "docs" / "images" / "reports"
SIZES = {"desktop": (1400, 1000), "phone": (390, 844)}
WIDTHS = {"desktop": 1000, "phone": 300}
HEIGHT = 1800
"""How much of a page a picture shows at the most, in pixels of the page."""

QUALITY = 50


def main() -> int:
    if not PROGRAM:
        print(MISSING, file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        make_reports(directory)
        with chromium() as browser:
            for page in sorted(directory.glob("*.html")):
                for look in SIZES:
                    _picture(browser, page, look)
    print(f"{sum([path.stat().st_size for path in IMAGES.iterdir()]) // 1024} KiB of pictures are in {IMAGES}")
    return 0


def make_reports(directory: Path) -> None:
    spark = quire.spark.session()
    report_data.ledger(spark).write.parquet(str(directory / "ledger"))
    report_data.letters(spark, SystemClock().now_ms()).write.parquet(str(directory / "letters"))
    for pipeline, source in (
        ("audit", "ledger"), ("latency", "ledger"), ("dead-letters", "letters"),
    ):  # fmt: skip
        page = directory / f"{pipeline}.html"
        arguments = ["pipeline", "run", pipeline, "--parquet", str(directory / source), "--report", str(page)]
        result = CliRunner().invoke(quire_command, arguments)
        assert page.exists(), result.output
    spark.stop()


def _picture(browser: Browser, page: Path, look: str) -> None:
    width, height = SIZES[look]
    tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
    tab.set_content(page.read_text("utf-8").replace(str(page.parent), "/archive"))
    picture = Image.open(io.BytesIO(tab.screenshot(full_page=True))).convert("RGB")
    picture = picture.crop((0, 0, picture.width, min(picture.height, HEIGHT)))
    small = picture.resize((WIDTHS[look], picture.height * WIDTHS[look] // picture.width), Image.Resampling.LANCZOS)
    small.save(IMAGES / f"{page.stem}-{look}.webp", quality=QUALITY, method=6)
    tab.close()


if __name__ == "__main__":
    sys.exit(main())
