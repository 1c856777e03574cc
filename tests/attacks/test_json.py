"""JSON that others have written: all that can be wrong with it is one error, and no key counts twice."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from federator.kernel.errors import Damaged, FederatorError, Invalid
from federator.wire import link
from federator.wire.jsontext import decode_json, read
from federator.wire.yamltext import read_document
from federator_agent import home, ownership
from federator_agent.enrollment import raise_for
from federator_agent.keys import STEPS, Keys
from federator_agent.spool import Spool

DEEP = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
NO_TEXT = b'{"run":"\xff"}'
HERE = Path(__file__).parents[2]
OWN = {
    "federator/wire/jsontext.py": "the one place",
    "federator/control": "the store's own rows",
    "federator/cli/demo": "what the demonstration's own process prints",
    "agents/federator_agent/kube/data_mover.py": "the order that the agent gives its own container",
    "agents/federator_agent/local/watchdog.py": "the agent's own notes; nothing else is imported there",
    "providers/federator_providers/local/folder.py": "its own record of a machine",
}
"""Who else decodes JSON, and why no other wrote it."""


class Record(msgspec.Struct):
    """Anything."""

    run: str = ""


@pytest.mark.parametrize("data", [DEEP, NO_TEXT, b"", b"{", b'{"run":1}', b'{"run":"\\ud800"}', b"9" * 5000])
@pytest.mark.parametrize("kind", [Record, object, dict[str, object]])
def test_whatever_is_wrong_is_one_error(data: bytes, kind: type) -> None:
    if data == b'{"run":1}' and kind is not Record:
        return
    if data == NO_TEXT and kind is object:
        with pytest.raises(Invalid, match="this is not JSON"):
            decode_json(data)
    with pytest.raises(msgspec.DecodeError):
        read(data, kind)


@pytest.mark.parametrize("data", [DEEP, NO_TEXT, b"[]"])
def test_nobody_is_ended_by_it(data: bytes, tmp_path: Path) -> None:
    """Each of these ended with a RecursionError, a UnicodeDecodeError or a ValidationError that nobody expects."""
    spool = Spool(tmp_path)
    for name in ("identity.json", "home", ownership.FILE, STEPS):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "journal").write_bytes(data + b"\n")
    looks: dict[str, Callable[[], object]] = {
        "identity": spool.identity,
        "journal": spool.read,
        "home": lambda: home.settle(tmp_path),
        "owner": lambda: ownership.mark_of(tmp_path, "lab"),
        "answer": lambda: raise_for(400, data),
    }
    if data != b"[]":  # no steps at all
        looks["steps"] = lambda: Keys(tmp_path).request("lab-1")
    for name, look in looks.items():
        with pytest.raises(FederatorError) as told:
            look()
        assert isinstance(told.value, Damaged | Invalid), name
    with pytest.raises(msgspec.DecodeError):
        link.decode_down(data.decode("utf-8", "replace"))


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ('{"queue": "open", "run": "x", "queue": "secret"}', "queue"),
        ('{"run": "x", "env": {"A": "1", "B": {}, "A": "1"}}', "A"),
        ('{"a": [1, {"b": ":", "b": 2}]}', "b"),
        ('{"a": "\\u003a", "a": ""}', "a"),
        ('{"a": ":::", "\\u0061": "\\u003A\\\\u003a"}', "a"),
        ('{"a" : {"x:y": 1}, "a"\n:\t2}', "a"),
    ],
)
def test_a_key_that_is_there_twice_is_refused(document: str, key: str) -> None:
    """What looks at a document before us may go by the first."""
    with pytest.raises(Invalid, match=f"twice: '{key}'") as refused:
        decode_json(document.encode())
    assert refused.value.remedy == "write it once"
    with pytest.raises(Invalid, match=key):
        read_document(document)


@pytest.mark.parametrize(
    "document",
    [
        '{"a": "b:c", "d:e": ["\\u003a", "\\u003A", "\\\\u003a", "\\\\\\u003a", ":"]}',
        '[{"a": 1}, {"a": 1}]',
        '{"a": {"a": {"a": "\\"a\\": 1"}}}',
        '{"a": "\\\\", "b": "\\\\:"}',
        '"\\ud83d\\ude00:"',
    ],
)
def test_colons_elsewhere_are_no_keys(document: str) -> None:
    assert decode_json(document.encode()) == read(document, object)


def test_a_key_in_a_long_document_is_refused_without_a_search_for_it() -> None:
    with pytest.raises(Invalid, match=r"^\$: a key is given twice \("):
        decode_json(b'{"a": [' + b"1," * 50_000 + b'1], "a": 1}')


AT_ONCE = """
import sys, threading
from msgspec import defstruct
from federator.wire.jsontext import read

sys.setswitchinterval(1e-6)
for _ in range(60):
    inner = defstruct("Inner", [(f"field{number}", int, 0) for number in range(20)])
    outer = defstruct("Outer", [(f"field{number}", inner | None, None) for number in range(20)])
    gate = threading.Barrier(8)
    def decode():
        gate.wait()
        read(b'{"field19": {"field19": 3}}', outer)
    threads = [threading.Thread(target=decode) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_that_decode_the_first_of_a_kind_at_once_do_not_end_the_process() -> None:
    """As the status line of `federator wait` and the command itself."""
    ran = subprocess.run([sys.executable, "-c", AT_ONCE], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_json_of_others_is_read_in_one_place() -> None:
    found = {
        str(path.relative_to(HERE))
        for source in ("federator", "agents", "providers", "policies")
        for path in (HERE / source).rglob("*.py")
        if re.search(r"\bmsgspec\.json\.(decode|Decoder)\b\(|\bjson\.loads?\(|\.json\(\)", path.read_text())
    }
    others = {path for path in found if not any(Path(path).is_relative_to(own) for own in OWN)}
    assert others == set(), "read it by federator.wire.jsontext"
    assert {own for own in OWN if not any(Path(path).is_relative_to(own) for path in found)} == set()
