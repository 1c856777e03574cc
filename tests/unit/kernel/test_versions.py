"""Which of two versions is older."""

import pytest

from federator.kernel.versions import compared


@pytest.mark.parametrize(
    ("version", "other", "said"),
    [
        ("0.9.0", "0.10.0", "older"),
        ("1.0", "0.10.0", "newer"),
        ("1.0", "1.0.0", ""),
        ("1.0.0rc1", "1.0.0", ""),
        ("0.0.older", "0.1.0", "older"),
        ("main", "0.1.0", ""),
        ("", "0.1.0", ""),
        ("1" * 200, "0.1.0", "newer"),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, other: str, said: str) -> None:
    assert compared(version, other) == said
