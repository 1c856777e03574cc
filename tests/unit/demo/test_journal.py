"""The journal of the jobs is what proves that nothing ran twice: it must catch whatever did."""

import json

from federator.cli.demo.result import second_copies


def line(what: str, at: float, placement: str = "p1", rank: int = 0, job: str = "j") -> str:
    return json.dumps({"what": what, "at": at, "job": job, "placement": placement, "rank": rank})


def test_a_gang_and_an_orderly_retry_are_no_copies() -> None:
    journal = [
        line("start", 1),
        line("start", 2, rank=1),
        line("end", 9),
        line("end", 10, rank=1),
        line("start", 11, placement="p2"),
        line("end", 12, placement="p2"),
        line("start", 1, placement="p3", job="other"),
        line("end", 20, placement="p3", job="other"),
    ]
    assert second_copies(journal) == []


def test_the_same_rank_started_twice_is_found() -> None:
    assert second_copies([line("start", 1), line("start", 2), line("end", 3)]) == [
        "rank 0 of p1 was started 2 times"
    ]


def test_attempts_that_overlap_are_found() -> None:
    journal = [
        line("start", 1),
        line("start", 4, placement="p2"),
        line("end", 5),
        line("end", 9, placement="p2"),
    ]
    assert second_copies(journal) == ["two attempts of j ran at the same time"]
