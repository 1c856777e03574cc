"""Everything that reads from outside, given what nobody would write: only named errors come out, and work is in proportion to the input.

`FEDERATOR_FUZZ=N` (`make fuzz`) tries N inputs for each decoder, from a seed that is printed; otherwise the same few are tried each time.
Work is counted in calls of functions, which are the same on each machine; memory by what was allocated at most.
"""

import gzip
import json
import os
import random
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from federator.hub.frames import Ended, believe
from federator.hub.frames import decode as decode_frame
from federator.hub.report_validation import check_report, check_statuses
from federator.kernel.errors import FederatorError
from federator.kernel.quantities import parse_duration_s, parse_instant, parse_size_bytes, parse_usd
from federator.wire import link
from federator.wire.decoding import decode
from federator.wire.http import JobPatch, TokenRequest
from federator.wire.jobfile import read_in_lines, read_job, read_job_document
from federator.wire.jsontext import decode_json
from federator.wire.steps import has_steps, read_steps
from federator.wire.yamltext import read_document
from federator_agent.config import parse as parse_site
from federator_agent.slurm import output
from federator_policies.documents import compile_set, load
from tests.support.mutations import mutated
from tests.support.outside import OUTSIDE, archive, table

CORPUS = Path(__file__).parent / "corpus"
TRIES = int(os.environ.get("FEDERATOR_FUZZ", "0"))
CALLS, CALLS_PER_BYTE = 30_000, 40
MEMORY, MEMORY_PER_BYTE = 4 * 2**20, 400


def _bounded(error: Exception, most: int) -> None:
    assert len(str(error)) < most


def _damaged(data: bytes) -> bool:
    try:
        gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return True
    return False


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _yaml(value: object) -> str:
    return (
        str(yaml.dump_all(value, allow_unicode=False))
        if isinstance(value, list)
        else str(yaml.safe_dump(value))
    )


def _frame(data: bytes) -> None:
    match decode_frame(data.decode("utf-8", "replace")):
        case link.Report(report, _):
            believe(check_report, report)
        case link.Statuses(reports):
            believe(check_statuses, reports)


def _quantities(data: bytes) -> None:
    value = json.loads(data)
    for read in (parse_duration_s, parse_size_bytes, parse_usd, parse_instant):
        if isinstance(value, str):
            try:
                read(value)
            except ValueError as error:
                _bounded(error, 1000)


def _slurm(data: bytes) -> None:
    value = json.loads(data)
    if isinstance(value, str):
        for read in (
            output.read_queue,
            output.read_nodes,
            output.read_partitions,
            output.read_other_jobs,
            output.last_words,
        ):
            read(value)


def _record(kind: type) -> Callable[[bytes], object]:
    return lambda data: decode(decode_json(data), kind, "$")


def _pipeline(value: object) -> object:
    return read_steps(value, now=1e9) if has_steps(value) else None


DECODERS: dict[str, Callable[[bytes], object]] = {
    "job": lambda data: read_job(decode_json(data), now=1e9),
    "pipeline.yaml": lambda data: read_in_lines(read_document(data.decode()), _pipeline),
    "job.yaml": lambda data: read_job_document(read_document(data.decode()), now=1e9),
    "policies.yaml": lambda data: compile_set(load(data.decode())),
    "site.yaml": lambda data: parse_site(data.decode(), "site.yaml", {}),
    "frames": _frame,
    "join": _record(link.JoinRequest),
    "token": _record(TokenRequest),
    "patch": _record(JobPatch),
    "quantities": _quantities,
    "slurm": _slurm,
} | OUTSIDE


def _written(name: str, value: object) -> bytes:
    if name.endswith(".yaml"):
        return _yaml(value).encode()
    return {".csv": table, ".tar": archive}.get(Path(name).suffix, _json)(value)


def _entries(name: str) -> list[object]:
    path = CORPUS / name
    if name.endswith(".yaml"):
        return [path.read_text()]
    found = json.loads(path.with_suffix(".json").read_text())
    assert isinstance(found, list)
    return found


def _inputs(name: str) -> list[bytes]:
    seed = random.randrange(2**32) if TRIES else 7
    sys.stdout.write(f"{name}: seed {seed}\n")
    chance, entries, inputs = random.Random(seed), _entries(name), []
    if name.endswith(".yaml"):
        documents = [list(yaml.safe_load_all(str(entry))) for entry in entries]
        entries = list(documents)
    for _ in range(TRIES or 25):
        value = mutated(chance.choice(entries), chance)
        try:
            inputs.append(_written(name, value))
        except (UnicodeEncodeError, yaml.YAMLError, RecursionError):
            continue
    return inputs


@pytest.mark.parametrize("name", DECODERS)
def test_only_named_errors_come_out_and_work_is_in_proportion(name: str) -> None:
    read = DECODERS[name]
    inputs = _inputs(name)
    assert len(inputs) > 12
    for data in inputs:
        calls, memory = _cost(read, data)
        size = len(gzip.decompress(data)) if name.endswith(".tar") and not _damaged(data) else len(data)
        told = f"{name}: {size} bytes: {data[:300]!r}"
        assert calls <= CALLS + CALLS_PER_BYTE * size, f"{calls} calls for {told}"
        assert memory <= MEMORY + MEMORY_PER_BYTE * size, f"{memory} bytes for {told}"


@pytest.mark.parametrize("name", DECODERS)
def test_what_somebody_would_write_is_read(name: str) -> None:
    """Else only refusals would be tried."""
    for entry in _entries(name):
        text = name.endswith(".yaml") and isinstance(entry, str)
        DECODERS[name](str(entry).encode() if text else _written(name, entry))


def test_a_decoder_that_works_too_much_is_seen() -> None:
    def reads(data: bytes) -> None:
        for at in range(len(data)):
            for _ in range(at):
                len(data)

    assert _cost(reads, b"x" * 1000)[0] > CALLS + CALLS_PER_BYTE * 1000


def _cost(read: Callable[[bytes], object], data: bytes) -> tuple[int, int]:
    """Calls of functions, and the most bytes in use; an error that has no name is raised."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    tracemalloc.start()
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        read(data)
    except (FederatorError, Ended) as error:
        _bounded(error, 10_000)
    except ExceptionGroup as group:
        if not all(isinstance(each, FederatorError) for each in group.exceptions):
            raise
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} for {data[:2000]!r}") from error
    finally:
        sys.setprofile(before)
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return calls, memory
