"""A broker with users and TLS is attacked for a moment; ``benchmarks.intruders`` measures it at length."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_intruders_take_little_memory_and_the_client_with_a_login_is_served() -> None:
    command = [sys.executable, "-m", "benchmarks.intruders", "--messages", "4000", "--rounds", "1", "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    findings = {row["figure"]: row for row in json.loads(done.stdout)}
    assert findings["peak_rss_anon_bytes"]["kept"], done.stdout
    assert findings["attacked_per_s"]["value"] > 0
    # The share of the rate is measured where nothing else runs: other tests may run beside this one.
    assert [findings[name]["kept"] for name in ("guesses", "errors", "closes")] == [True] * 3, done.stdout
