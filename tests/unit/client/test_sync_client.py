"""The client without asyncio is what its generator makes of the client for asyncio."""

import runpy

import pytest

from tests.docs.pages import ROOT


@pytest.mark.slow
def test_the_client_without_asyncio_is_generated() -> None:
    generated = runpy.run_path(str(ROOT / "scripts" / "sync_client.py"))["generated"]()
    assert (ROOT / "quire/client/sync.py").read_text("utf-8") == generated, "run `python scripts/sync_client.py`"
