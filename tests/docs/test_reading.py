"""The reader of pages itself: it must miss nothing that is wrong, and not trip over what differs from run to run."""

from pathlib import Path

import pytest

from tests.docs.walkthrough import Command, File, first_unseen, read_page


def test_a_page_becomes_files_and_commands_in_order(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\n\n```yaml job.yaml\nrun: x\n```\n\n```console setup\n$ make demo\n```\n\n"
        "```console other\n$ serve\nlistens\n```\n\n```console\n$ one\n$ two\nprinted\n```\n\n```yaml\nno: file\n```\n"
    )
    assert read_page(page) == [
        File("job.yaml", "run: x\n"),
        Command("other", "serve", ("listens",), 12),
        Command("", "one", (), 17),
        Command("", "two", ("printed",), 18),
    ]


def test_output_without_a_command_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\nprinted\n```\n")
    with pytest.raises(AssertionError, match="without a command"):
        read_page(page)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("job-01m7y5nzhewzh15c5hntr93cab  RUNNING", "job-01m7y4fawvq1yshantac9k9j8x   RUNNING"),
        ("starts in 7s (2026-11-21T04:07:26Z)", "starts now (2026-12-01T00:00:00Z)"),
        ("room at about 04:21", "room at about 14:55:03"),
        ("3.67  0.061 USD", "4.00  1.5 USD"),
        ("http://127.0.0.1:7070", "http://127.0.0.1:33523"),
        ("done at nor…", "done at north"),
        ("4s ago  1 node with 1 GPU fi…", "10s ago  1 node with 1 GPU f…"),
        ("local/a2…  GONE  1  31s  at home i…", "local/a…  GONE  1  2m37s  at home …"),
        ("local/a2.48  GONE  31s", "local/a2…  GONE  2m37s"),
        ("RUNNING", "\x1b[32mRUNNING\x1b[0m"),
    ],
)
def test_what_differs_from_run_to_run_is_no_difference(shown: str, printed: str) -> None:
    assert first_unseen((shown,), f"something before\n{printed}\n") is None


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("north  READY  8  0", "north  READY  8  1"),
        ("SUCCEEDED  train", "FAILED  train"),
        ("exit code 3", "exit code 4"),
        ("done at nor…", "done at south"),
        ("local/a2…  GONE  1  at home i…", "local/a…  READY  1  at home …"),
        ("local/a2…  GONE  1  at home i…", "local/b…  GONE  1  at home …"),
        ("lease-01m7y46x8bexam971xfjr87nqs", "job-01m7y46x8bexam971xfjr87nqs"),
    ],
)
def test_what_the_page_gets_wrong_is_found(shown: str, printed: str) -> None:
    assert first_unseen((shown,), printed) == shown


def test_a_cell_that_is_wrapped_elsewhere_is_no_difference() -> None:
    printed = "north  no  in 7s  no room now for 1 node\n                  with 1 GPU: 0 GPUs free\n"
    assert (
        first_unseen(("north  no  in 12s  no room now for", "1 node with 1 GPU: 0 GPUs free"), printed)
        is None
    )
    assert first_unseen(("north  no  in 12s  no room for", "1 node"), printed) is not None


def test_lines_come_in_the_order_of_the_page_and_may_be_left_out_of_it() -> None:
    assert first_unseen(("one", "...", "three"), "one\ntwo\nthree\n") is None
    assert first_unseen(("three", "one"), "one\ntwo\nthree\n") == "one"
