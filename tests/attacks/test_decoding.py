"""What is wrong with a document is told in few words, and finding them costs no more than reading it did."""

import difflib

import msgspec
import pytest

from federator.kernel.errors import Invalid
from federator.wire.decoding import decode
from federator.wire.jobfile import read_job
from federator.wire.link import JoinRequest


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which words are compared, letter by letter, with known ones."""
    words: list[str] = []

    class Counting(difflib.SequenceMatcher[str]):
        def set_seq2(self, b: object) -> None:
            words.extend([str(b)] if b else [])
            super().set_seq2(b)  # type: ignore[arg-type]

    monkeypatch.setattr(difflib, "SequenceMatcher", Counting)
    return words


def test_a_long_name_of_a_field_is_refused_and_not_compared(compared: list[str]) -> None:
    """Without a token, one name of 16 MB took seven seconds, each time."""
    with pytest.raises(Invalid, match="there is no field") as refused:
        decode({"x" * 2**20: 1}, JoinRequest, "$")
    assert compared == []
    assert len(refused.value.describe()) < 500
    assert "known are" in refused.value.describe()


def test_a_long_name_in_a_job_file_is_refused_and_not_compared(compared: list[str]) -> None:
    with pytest.raises(Invalid, match="there is no field") as refused:
        read_job({"run": "x", "imagee" * 5000: 1}, now=0.0)
    assert compared == []
    assert len(refused.value.describe()) < 2000


def test_a_short_name_still_gets_its_suggestion(compared: list[str]) -> None:
    with pytest.raises(Invalid, match="did you mean image"):
        read_job({"run": "x", "imagee": "x"}, now=0.0)
    assert compared == ["imagee"]


def test_what_is_told_of_an_error_is_bounded_whatever_was_sent() -> None:
    error = Invalid("x" * 10**6, field="y" * 10**6, remedy="z" * 10**6)
    assert len(error.describe()) < 6100
    assert len(str(error)) < 6100


def test_where_the_complaint_quotes_a_text_like_its_own_end_the_field_is_the_real_one() -> None:
    """The decoder's complaint ends with a place, and so could a name in it, many thousand times."""

    class Inner(msgspec.Struct, forbid_unknown_fields=True):
        here: int = 0

    class Outer(msgspec.Struct, forbid_unknown_fields=True):
        inner: Inner | None = None

    with pytest.raises(Invalid, match="there is no field") as refused:
        decode({"inner": {" - at `$.elsewhere" * 50_000: 1}}, Outer, "$")
    assert (refused.value.field or "").startswith("$.inner.")
