"""YAML as 1.2 reads it, with lines; hostile text is refused and never more than refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.kernel.errors import FederatorError, Invalid, TooLarge
from federator.wire.yamltext import read_document, read_documents


def test_words_that_yaml_1_1_reads_as_truth_stay_words() -> None:
    document = read_document("on: off\nyes: no\nat: 12:30:45\nday: 2026-12-01T08:00:00Z\n")
    assert document.value == {"on": "off", "yes": "no", "at": "12:30:45", "day": "2026-12-01T08:00:00Z"}


def test_core_schema_scalars() -> None:
    text = (
        "[1, -2, 0o17, 0x1f, 010, 1.5, 1e3, .5, true, False, null, ~, '1', \"true\", !!str 7, 1_000, 1.2.3]"
    )
    assert read_document(text).value == [
        1, -2, 15, 31, 10, 1.5, 1000.0, 0.5, True, False, None, None, "1", "true", "7", "1_000", "1.2.3",
    ]  # fmt: skip


def test_a_version_1_1_directive_does_not_bring_its_words_back() -> None:
    assert read_document("%YAML 1.1\n---\nmode: off\n").value == {"mode": "off"}


def test_every_value_knows_its_line() -> None:
    document = read_document("name: a\nresources:\n  gpus: 4\nlist:\n- x\n- y: 1\n")
    assert document.lines["$.resources.gpus"] == 3
    assert document.lines["$.list[0]"] == 5
    assert document.lines["$.list[1].y"] == 6


def test_several_documents_are_read_or_refused() -> None:
    assert [document.value for document in read_documents("a: 1\n---\nb: 2\n")] == [{"a": 1}, {"b": 2}]
    with pytest.raises(Invalid, match="2 documents"):
        read_document("a: 1\n---\nb: 2\n")


def test_empty_text_is_an_empty_mapping() -> None:
    assert read_document("# nothing\n").value == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: the key 'a' is given twice"),
        ("a: &x [1]\nb: *x\n", "line 2: aliases"),
        ("a: !!python/object/apply:os.system [ls]\n", "line 1: tags such as"),
        ("a: !secret x\n", "line 1: tags such as"),
        ("a: [1\nb: 2\n", "line 2: this is not YAML"),
        ("a: {b: 1}}\n", "this is not YAML"),
        ("? {a: 1}\n: 2\n", "a key must be a word"),
        ("[" * 40 + "]" * 40, "nested more than 32 deep"),
        ("a:\n\tb: 1\n", "line 2"),
        ("a: \x00\n", "this is not YAML"),
    ],
)
def test_what_is_refused_says_where(text: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_document(text)
    assert says in str(caught.value)


def test_a_file_over_the_limit_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(TooLarge):
        read_document("a" * (2**20 + 1))


@given(st.text(st.sampled_from("ab:-[]{}&*!|>'\"%#,?\n \t\x00é01.~@`"), max_size=60))
def test_hostile_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(FederatorError):
        read_documents(text)


@pytest.mark.parametrize(
    ("text", "line", "remedy"),
    [
        ("run: echo a: b\n", "line 1:", "quote a value that has ': ' in it"),
        ("run: x\n  name: y\n", "line 2:", "begin the keys of one mapping in one column"),
        ("run: x\n\tname: y\n", "line 2:", "not with tabs"),
        ('run: "x\nname: y\n', "in what begins in line 1", "close the quote"),
        ("run: x\nresources: {gpus: 4\nname: y\n", "in what begins in line 2", "close the bracket"),
        ("run: x\nname y\n", "line 3:", "a blank after the colon"),
        ("run: @x\n", "line 1:", "begins with this character"),
        ("a: 1\n b: [}\n", "line 2:", ""),
    ],
)
def test_text_that_is_no_yaml_is_told_with_its_line_and_what_to_do(text: str, line: str, remedy: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_document(text)
    assert line in caught.value.message
    assert remedy in (caught.value.remedy or "")
    assert caught.value.remedy
