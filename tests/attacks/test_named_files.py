"""Files that somebody has sent and that a user names: endless, nested, packed a thousandfold, or with numbers that make no sense. Each is refused by name."""

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from federator.cli.app import run_command
from federator.kernel.errors import FederatorError, TooLarge
from federator.model import ledger
from federator.model.ledger import LONGEST_NAME, RECENT, Head, LedgerState, Part, Seal, Verifier, head_of
from federator.simulation import spot_events
from federator.simulation.data_moves import _table
from federator.simulation.spot_events import read_history
from federator.simulation.traces import read_trace
from federator.simulation.world_files import from_table, load_world
from federator.wire import named_files

ENDLESS = Path("/dev/zero")
MIB = 2**20
TRACE = "name,submit_s,run_s\n"


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a user sees of a command that does not do it: one clear error, and no trace of ours."""
    code = run_command(words)
    said = capsys.readouterr().err
    assert code not in (0, None), said
    assert "Traceback" not in said
    assert len(said) < 5000
    return said


def seal(number: int = 1, **changes: object) -> Seal:
    whole = {
        "number": number,
        "previous": "",
        "at": 0.0,
        "lines": (),
        "head": "",
        "key": "k",
        "signature": "s",
    }
    return Seal(**(whole | changes))  # type: ignore[arg-type]


def line(part: Part) -> bytes:
    return msgspec.json.encode(part) + b"\n"


@pytest.mark.parametrize("option", [("FILE",), ("--since",)])
def test_a_ledger_without_a_line_end_is_read_no_further_than_a_line_may_be(
    capsys: pytest.CaptureFixture[str], option: tuple[str, ...]
) -> None:
    words = (
        ("ledger", "verify", str(ENDLESS))
        if option == ("FILE",)
        else ("ledger", "verify", *option, str(ENDLESS))
    )
    said = refused(capsys, *words)
    assert "/dev/zero: it has a line of over 1 MiB" in said


@pytest.mark.parametrize(
    "content",
    [
        b'{"line":{"id":' + b"[" * 100_000 + b"]" * 100_000 + b"}}\n",
        b'{"line":{"x":' + b'{"x":' * 985 + b"1" + b"}" * 985 + b"}}\n",
        b'{"seal":{"number":' + b"9" * 5000 + b"}}\n",
        b'{"state":{"number":1e400}}\n',
        b'{"signed":{"number":1,"head":"' + b"x" * (LONGEST_NAME + 1) + b'"}}\n',
        b"\xff\xfe\n",
        b"[]\n",
    ],
    ids=["nested", "nested-barely", "huge-whole", "huge-real", "long-name", "no-text", "no-part"],
)
def test_a_ledger_that_is_none_is_refused_with_its_name_and_what_would_be_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_bytes(content)
    said = refused(capsys, "ledger", "verify", str(file))
    assert f"{file}: this is not an export of a ledger" in said.replace("\n", " ")
    assert "federator ledger export" in said.replace("\n", " ")


@pytest.mark.parametrize(
    "entry",
    [
        {"id": ["x"]},
        {"id": "x" * 300},
        {"id": "a", "at": "soon"},
        {"id": 10**30, "at": 1},
        {"id": {}, "at": {}},
    ],
)
def test_a_line_that_is_none_is_a_finding(entry: dict[str, object]) -> None:
    verifier = Verifier(lambda *_: True)
    verifier.take(Part(line=entry))
    (finding,) = verifier.end().findings
    assert "is none of a ledger" in finding.text


def test_what_a_verifier_remembers_does_not_grow_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_WAITING", 50)
    monkeypatch.setattr(ledger, "MOST_KEYS", 50)
    verifier = Verifier(lambda *_: True)
    for number in range(2 * RECENT):
        verifier.take(Part(seal=seal(number * 5000)))
        verifier.take(Part(state=LedgerState(number=number * 5000)))
    assert len(verifier.recent) <= RECENT
    assert len(verifier.heads) + len(verifier.newest) <= 1
    many: list[Callable[[int], Part]] = [
        lambda n: Part(line={"id": f"l{n}", "at": 1.0}),
        lambda n: Part(signed=Head(n, "h")),
        lambda n: Part(seal=seal(n, key=f"k{n}")),
    ]
    for what in many:
        for number in range(49):
            verifier.take(what(number))
        with pytest.raises(TooLarge):
            for _ in map(verifier.take, map(what, range(49, 52))):
                pass


def test_lines_that_wait_are_not_gone_through_for_every_seal() -> None:
    """A million lines before a million empty seals took a million times a million steps."""
    looked = 0

    class Counted(dict[str, object]):
        def __iter__(self) -> Iterator[str]:
            nonlocal looked
            looked += len(self)
            return super().__iter__()

    verifier = Verifier(lambda *_: True)
    verifier.waiting = Counted()  # type: ignore[assignment]
    for number in range(1000):
        verifier.take(Part(line={"id": f"l{number}", "at": 1.0}))
    last = seal(0)
    for number in range(1, 1001):
        last = seal(number, previous=last.head)
        last = msgspec.structs.replace(last, head=head_of(last))
        verifier.take(Part(seal=last))
    assert looked == 0


def test_a_packed_ledger_is_read_and_one_that_expands_without_end_is_not(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ledger.jsonl.gz"
    file.write_bytes(gzip.compress(line(Part(line={"id": "a", "at": 1.0}))))
    assert run_command(("ledger", "verify", str(file))) == 0
    assert "1 not sealed yet" in capsys.readouterr().out
    file.write_bytes(gzip.compress(b" " * (MIB - 2) + b"\n") * 100)
    monkeypatch.setattr("federator.cli.ledger.EXPORT_BYTES", 10 * MIB)
    assert "it is over 10 MiB, unpacked" in refused(capsys, "ledger", "verify", str(file))
    file.write_bytes(gzip.compress(b"{}\n")[:-3])
    assert f"{file} cannot be read: Compressed file ended" in refused(
        capsys, "ledger", "verify", str(file)
    ).replace("\n", " ")


COLUMNS = b"cluster,job,submit_s,duration_s,num_gpu,trace,t_s,instances\n"
TABLES: list[Callable[[Path], object]] = [
    read_trace,
    lambda path: read_history(path, "t"),
    lambda path: _table(path, {"a"}),
]


@pytest.mark.parametrize("read", TABLES, ids=["simulate", "market", "links"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"x" * (2 * MIB), "a line of over 1 MiB"),
        (b",".join(b"c%d" % n for n in range(1001)) + b"\n", "over 1000 columns"),
        (COLUMNS + b"\n" * 30_001, "over 30000 lines"),
        (COLUMNS + b"\r\n" * 25_000, "over 0.03125 MiB, unpacked"),
    ],
    ids=["line", "columns", "lines", "size"],
)
def test_a_table_that_expands_a_thousandfold_is_refused_as_it_is_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Path], object],
    content: bytes,
    says: str,
) -> None:
    monkeypatch.setattr(named_files, "TABLE_BYTES", 2**15)
    file = tmp_path / "t.csv.gz"
    monkeypatch.setattr(named_files, "MOST_LINES", 30_000)
    file.write_bytes(gzip.compress(content, 1))
    with pytest.raises(TooLarge, match=says) as told:
        read(file)
    assert str(file) in told.value.describe()


@pytest.mark.parametrize(
    "row",
    [
        "j,nan,1,1,1",
        "j,1,inf,1,1",
        "j,1,1,99999,1",
        "j,1,1,1,99999",
        "j,1e300,1,1,1",
        f"j,1,1,{'9' * 5000},1",
        "j,1,1,1,1,nan",
        "j,1,1,1,1,,inf",
        "j,1,1,1,1,,,nan",
        "j,1,1,1,1,,,,2x1=nan",
        "j,1,1,1,1,,,,,T4=inf",
    ],
)
def test_numbers_of_a_trace_are_those_of_jobs(tmp_path: Path, row: str) -> None:
    """Those that are none came into every plan: nothing is earlier or dearer than no number."""
    columns = "name,submit_s,run_s,nodes,gpus,deadline_s,value_usd,saves_s,forms,speed"
    (tmp_path / "t.csv").write_text(f"{columns}\n{row}\n")
    with pytest.raises(FederatorError, match="line 2 is not a job"):
        read_trace(tmp_path / "t.csv")


@pytest.mark.parametrize("row", ["t,1,1000000000000", "t,nan,1", "t,-1,1", "t,1,-5", "t,1"])
def test_a_market_of_more_machines_than_there_are_is_not_drawn(tmp_path: Path, row: str) -> None:
    """A row of a few bytes came to an event for each machine."""
    (tmp_path / "t.csv").write_text(f"trace,t_s,instances\n{row}\nt,5,0\n")
    with pytest.raises(FederatorError, match="cannot be read"):
        read_history(tmp_path / "t.csv", "t")


def test_rows_of_a_market_come_to_so_many_events_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spot_events, "MOST_EVENTS", 1000)
    rows = "".join(f"t,{n},{n % 2 * 100}\n" for n in range(50))
    (tmp_path / "t.csv").write_text(f"trace,t_s,instances\n{rows}")
    with pytest.raises(FederatorError, match="over 1000 machines"):
        read_history(tmp_path / "t.csv", "t")


@pytest.mark.parametrize(
    "row",
    [
        "a,1000000000,8",
        "a,1,1000000000",
        f"a,1,{'9' * 5000}",
        "a,-5,8",
        "a,1,-8",
        "a,1,8,abc",
        "a,1,8,nan",
        "a,1,8,-1",
        "a,1,8,1e300",
        "a,1,8,1,moon",
        "a,1",
        "a,1,8,,,1",
        "a,1,8,1,,1,nan",
    ],
)
def test_pools_of_a_table_are_those_of_a_world_file(row: str) -> None:
    columns = "cluster,nodes,gpus_per_node,usd_per_gpu_h,site_kind,burst,provisioning_h"
    with pytest.raises(FederatorError, match="line 2 is not a pool"):
        from_table(f"{columns}\n{row}\n", "t.csv")


@pytest.mark.parametrize("words", [("submit",), ("policy", "validate")])
def test_a_document_that_is_no_text_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "d.yaml"
    file.write_bytes(b"name: \xff\xfe\n")
    assert f"{file} is not text (write it in UTF-8)" in refused(capsys, *words, str(file)).replace("\n", " ")
    with pytest.raises(FederatorError, match=f"--world: {file} is not text"):
        load_world(file)


def test_documents_without_an_end_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TooLarge, match="/dev/zero: it is over 64 MiB"):
        load_world(ENDLESS)
    for words in (("submit", str(ENDLESS)), ("policy", "validate", str(ENDLESS))):
        assert "it is over 64 MiB" in refused(capsys, *words)
