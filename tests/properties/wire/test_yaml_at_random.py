"""What is written as YAML is read back as the same, whatever texts it holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.wire.yamltext import read_document, write_document

TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
KEYS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.booleans())
def test_what_is_written_is_read_back(value: object, ascii_only: bool) -> None:
    text = write_document({"value": value}, ascii_only=ascii_only)
    assert not ascii_only or text.isascii()
    assert read_document(text).value == {"value": value}


@pytest.mark.parametrize(
    "text", ["on", "off", "yes", "1e3", "0o17", "0x1f", "12:30", ".5", "+1", "null", "~", "", "- a", "2026-12-01", "a: b", "&a", "*a"]
)  # fmt: skip
def test_a_text_that_looks_like_something_else_stays_a_text(text: str) -> None:
    assert read_document(write_document([text])).value == [text]


def test_a_value_that_comes_twice_is_written_twice() -> None:
    inner = {"gpus": 1}
    assert write_document([inner, inner]) == "- gpus: 1\n- gpus: 1\n"
