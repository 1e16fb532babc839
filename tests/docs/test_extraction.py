"""What counts as an example: nothing is left out by mistake, and a failing example fails."""

from pathlib import Path

import pytest

from tests.docs.examples import Example, find_examples, run_example
from tests.docs.running_broker import RunningBroker

BROKER = RunningBroker(stomp_port=4001, http_port=4002)


def test_sh_and_python_run_and_other_blocks_do_not() -> None:
    page = "# T\n\n```sh\nls\n```\n\n```toml\na = 1\n```\n\n```python\nprint(1)\n```\n\n```text\nx\n```\n"
    assert find_examples(page) == [Example("sh", 4, "ls\n"), Example("python", 12, "print(1)\n")]


def test_a_block_with_a_reason_does_not_run() -> None:
    assert find_examples("```sh no-run: needs root\nreboot\n```\n") == []


def test_the_output_belongs_to_the_example_before_it() -> None:
    page = "```sh\necho a\n```\n\n```text output\na\n```\n"
    assert find_examples(page) == [Example("sh", 2, "echo a\n", "a\n")]


@pytest.mark.parametrize(
    "page",
    [
        "```sh no-run\nls\n```\n",
        "```sh no-run:\nls\n```\n",
        "```python later\n1\n```\n",
        "```console\n$ ls\n```\n",
        "```bash\nls\n```\n",
        "```text output\na\n```\n",
        "```sh\nls\n```\n\nprints\n\n```text output\na\n```\n",
        "```sh no-run: slow\nls\n```\n\n```text output\na\n```\n",
    ],
)
def test_a_tag_that_would_leave_something_out_is_an_error(page: str) -> None:
    with pytest.raises(ValueError, match=r"line \d"):
        find_examples(page)


@pytest.mark.slow
@pytest.mark.parametrize(
    "example",
    [
        Example("sh", 1, "echo 61613 8161 > ports; cat ports", "4001 4002\n"),
        Example("sh", 1, "echo $QUIRE_URL", "http://127.0.0.1:4002\n"),
        Example("python", 1, "print('id', 12345)", "id ...\n"),
    ],
)
def test_an_example_that_does_what_the_page_says_passes(example: Example, tmp_path: Path) -> None:
    run_example(example, BROKER, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "example",
    [
        Example("sh", 1, "false; true"),
        Example("sh", 1, "false | true"),
        Example("python", 1, "raise SystemExit(3)"),
        Example("sh", 1, "echo a", "b\n"),
    ],
)
def test_an_example_that_does_not_fails(example: Example, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_example(example, BROKER, tmp_path)
