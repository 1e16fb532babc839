"""Every example of the README and of the documentation runs as it stands."""

from pathlib import Path

import pytest

from tests.docs.examples import find_examples, run_example
from tests.docs.pages import ROOT, pages
from tests.docs.running_broker import running_broker


@pytest.mark.slow
@pytest.mark.parametrize("name", [page for page in pages() if find_examples((ROOT / page).read_text("utf-8"))])
def test_the_examples_of_a_page_run_in_their_order(name: str, tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        for example in find_examples((ROOT / name).read_text("utf-8")):
            run_example(example, broker, tmp_path)
