"""`groups:` of a job file: what a gang of unlike ranks asks for, what each of its ranks runs, and what is refused."""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from federator.kernel.errors import FederatorError
from federator.model.jobs import FIRST
from federator.wire.jobfile import JobRequest, read_job
from federator.wire.needs import LAUNCHERS, needs_of

SHELLS = [path for name in ("dash", "bash", "busybox") if (path := shutil.which(name))]
HEAD = {"name": "head", "run": "python learn.py", "resources": {"cpus": 8}}
WORKERS = {
    "name": "workers",
    "nodes": 3,
    "run": "python roll.py",
    "resources": {"gpus": "H100:8", "cpus": 16},
}


def job(*groups: dict[str, Any], **fields: Any) -> JobRequest:
    return read_job({"groups": list(groups)} | fields, now=0.0)


def test_each_node_is_asked_for_the_sum_and_the_gpus_are_of_one_group() -> None:
    request = job(HEAD, WORKERS, success="head")
    spec = request.spec
    assert (spec.nodes, spec.resources.cpus_milli, spec.resources.gpus.count) == (3, 24_000, 8)
    assert (spec.success, spec.name, needs_of(spec)) == (FIRST, "roll", (LAUNCHERS,))
    assert request.notes == (
        "each of its 3 nodes is asked for 24 CPUs, the sum of all groups; head runs on 1",
    )
    assert (spec.run or "").splitlines() == ["head: python learn.py", "workers: python roll.py"]
    without = job(HEAD | {"nodes": 2}, HEAD | {"name": "one"})
    assert (without.spec.nodes, without.spec.success or None) == (2, None), (
        "without GPUs the widest is on all"
    )


def test_the_group_on_all_nodes_may_be_of_several_sizes() -> None:
    sizes = {"gpus": "A100:1..4", "cpus": 4, "memory": "8GiB"}
    spec = job(HEAD | {"resources": {"memory": "2GiB"}}, WORKERS | {"resources": sizes}, checkpoint={}).spec
    forms = [spec.resources, *(form.resources for form in spec.forms or ())]
    assert {(each.cpus_milli, each.memory_mib) for each in forms} == {(5000, 10_240)}
    assert {each.gpus.count for each in forms} == {1, 2, 3, 4}
    assert spec.elastic is True
    spec = job(HEAD, WORKERS | {"min_nodes": 1, "max_nodes": 8}).spec
    assert {form.nodes for form in spec.forms or ()} >= {1, 8}


def test_a_framework_of_one_group_starts_its_command() -> None:
    spec = job(HEAD, WORKERS | {"framework": "torchrun"}).spec
    assert "workers (torchrun): python roll.py" in (spec.run or "")
    assert "exec torchrun" in (spec.launch or ())[2]


def test_a_group_that_asks_for_0_gpus_asks_for_none() -> None:
    spec = job(HEAD | {"resources": {"gpus": 0}}, WORKERS).spec
    assert (spec.nodes, spec.resources.gpus.count) == (3, 8)
    assert job(HEAD | {"resources": {"gpus": 0}}, HEAD | {"name": "wide", "nodes": 2}).spec.nodes == 2


@pytest.mark.parametrize(
    ("groups", "fields", "said"),
    [
        ((HEAD,), {"run": "x"}, "$.run: does not go with groups (write it in each group)"),
        ((HEAD,), {"nodes": 2}, "$.nodes: does not go with groups"),
        ((HEAD, HEAD), {}, "$.groups[1].name: head is the name of two groups"),
        ((HEAD | {"name": "all"},), {}, "$.groups[0].name: all is a word of success"),
        ((HEAD, WORKERS), {"success": "heads"}, "$.success: heads is no group of this job (write head, workers or all)"),
        ((WORKERS, WORKERS | {"name": "more"}), {}, "$.groups[1].resources.gpus: asks for GPUs, and so does group workers"),
        ((HEAD | {"nodes": 4}, WORKERS), {}, "$.groups[0].nodes: is more than the 3 that group workers may have"),
        ((HEAD | {"nodes": 2}, WORKERS | {"min_nodes": 1}), {}, "$.groups[0].nodes: is more than the 1 that"),
        ((HEAD | {"max_nodes": 2}, WORKERS), {}, "$.groups[0].max_nodes: is for group workers"),
        ((HEAD | {"resources": {"any_of": [{"cpus": 1}]}}, WORKERS), {}, "$.groups[0].resources: a list of sizes"),
        ((HEAD | {"resources": {"memory": "1GiB"}}, WORKERS), {}, "$.groups[1].resources.memory: is missing"),
        (
            (
                HEAD | {"resources": {"memory": "1GiB"}},
                WORKERS | {"resources": {"any_of": [{"gpus": 8, "memory": "8GiB"}, {"gpus": 4}]}},
            ),
            {},
            "$.groups[1].resources.memory: is missing",
        ),
        ((HEAD, WORKERS | {"resources": {"gpus": "A100:-1"}}), {}, "$.groups[1].resources.gpus: "),
        ((HEAD, WORKERS | {"framework": "ray"}), {}, "$.groups[1].framework: ray makes a cluster of all ranks"),
        (
            (HEAD | {"framework": "torchrun"}, WORKERS | {"framework": "deepspeed"}),
            {},
            "$.groups[1].framework: is in two groups",
        ),
        ((HEAD | {"run": None},), {}, "$.groups[0].run: nothing to run"),
        ((HEAD, WORKERS | {"min_nodes": 4}), {}, "$.groups[1].min_nodes: "),
        ((HEAD,), {"checkpoint": {"signal": "INT"}}, "$.checkpoint.signal: INT does not reach the groups"),
        ((HEAD | {"gpus": 1},), {}, "$.groups[0].gpus: there is no field 'gpus' (did you mean resources.gpus?)"),
        ([HEAD | {"name": f"g{n}"} for n in range(9)], {}, "$.groups: has 9 entries; at most 8 are taken"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_where_it_stands(groups: Any, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(FederatorError) as caught:
        job(*groups, **fields)
    assert str(caught.value).startswith(said)


def test_success_names_a_group_only_where_there_are_some() -> None:
    with pytest.raises(FederatorError, match="write all or first"):
        read_job({"run": "x", "success": "head"}, now=0.0)


def run(
    shell: str,
    tmp_path: Path,
    rank: int,
    *groups: dict[str, Any],
    form: int = 0,
    more: dict[str, str] | None = None,
    **fields: Any,
) -> subprocess.Popen[str]:
    """What that rank of two runs, in a session of its own, as an agent starts it in that form of the job."""
    arguments = [shell, *(["sh"] if shell.endswith("busybox") else [])]
    spec = job(*groups, **fields).spec
    launch = spec.launch or ()
    size = [spec.resources, *(form.resources for form in spec.forms or ())][form]
    environment = os.environ | {
        "FEDERATOR_NODE_RANK": str(rank), "FEDERATOR_NUM_NODES": "2", "FEDERATOR_GPUS_PER_NODE": "1",
        "FEDERATOR_CPUS_PER_NODE": str(max(1, size.cpus_milli // 1000)), "FEDERATOR_GPU_SHARE": "0.5",
        **({"FEDERATOR_MEMORY_MIB_PER_NODE": str(size.memory_mib)} if size.memory_mib else {}),
        "CUDA_VISIBLE_DEVICES": "3", "PET_NPROC_PER_NODE": "1", "WORLD_SIZE": "2", "TMPDIR": str(tmp_path),
    } | (more or {})  # fmt: skip
    return subprocess.Popen(
        [*arguments, *launch[1:]],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


SEEN = 'echo "$FEDERATOR_GROUP $FEDERATOR_NUM_NODES $FEDERATOR_CPUS_PER_NODE $FEDERATOR_GPUS_PER_NODE [$CUDA_VISIBLE_DEVICES] ${FEDERATOR_GPU_SHARE-} ${FEDERATOR_MEMORY_MIB_PER_NODE-}"'
WAITS = "while :; do sleep 60 & wait; done"


def begun(folder: Path, process: subprocess.Popen[str]) -> None:
    """Both groups run their commands."""
    while len(list(folder.glob("begun-*"))) < 2:
        assert process.poll() is None


@pytest.mark.parametrize("shell", SHELLS)
def test_each_group_sees_its_own_size_on_the_nodes_where_it_is(shell: str, tmp_path: Path) -> None:
    groups = (
        {"name": "head", "run": SEEN, "resources": {"cpus": 2}},
        {"name": "workers", "nodes": 2, "run": SEEN, "resources": {"gpus": 1, "cpus": 4}},
    )
    first = run(shell, tmp_path, 0, *groups)
    other = run(shell, tmp_path, 1, *groups)
    seen = [sorted(each.communicate(timeout=30)[0].splitlines()) for each in (first, other)]
    assert seen == [["head 1 2 0 []  ", "workers 2 4 1 [3] 0.5 "], ["workers 2 4 1 [3] 0.5 "]]
    assert (first.returncode, other.returncode) == (0, 0)
    assert list(tmp_path.iterdir()) == [], "its files are gone"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("form", "seen"), [(0, "workers 2 16 1 [3] 0.5 8192"), (1, "workers 2 1 1 [3] 0.5 4096")]
)
def test_the_group_on_all_nodes_sees_the_form_in_which_the_job_runs(
    shell: str, form: int, seen: str, tmp_path: Path
) -> None:
    """Its first form has no GPUs: that hides them in no other."""
    sizes = {"any_of": [{"cpus": 16, "memory": "8GiB"}, {"gpus": 1, "cpus": "500m", "memory": "4GiB"}]}
    groups = (
        {"name": "head", "run": SEEN, "resources": {"cpus": "500m", "memory": "1GiB"}},
        {"name": "workers", "nodes": 2, "run": SEEN, "resources": sizes},
    )
    said, _ = run(shell, tmp_path, 0, *groups, form=form).communicate(timeout=30)
    assert sorted(said.splitlines()) == ["head 1 1 0 []  1024", seen]


@pytest.mark.parametrize(
    "shell", [each for each in SHELLS if not each.endswith("busybox")]
)  # it has its own mkfifo
def test_a_job_that_is_told_to_leave_before_its_groups_begin_starts_none(shell: str, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "mkfifo").write_text(
        f"#!/bin/sh\ntrap '' TERM\nkill -s TERM 0\nexec {shutil.which('mkfifo')} \"$@\"\n"
    )
    (tools / "mkfifo").chmod(0o755)
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    process = run(shell, tmp_path, 0, {"name": "head", "run": "echo begun"}, more=path)
    assert process.communicate(timeout=30)[0] == ""
    assert process.returncode == 143


@pytest.mark.parametrize("shell", SHELLS)
def test_a_place_without_room_for_files_says_what_groups_need(shell: str, tmp_path: Path) -> None:
    process = run(shell, tmp_path / "none", 0, {"name": "head", "run": "echo begun"})
    said = process.communicate(timeout=30)
    assert (process.returncode, said[0]) == (125, "")
    assert "federator: groups need mktemp, mkfifo and a place for files at TMPDIR or /tmp" in said[1]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("success", "code"), [("head", 0), ("head", 7), (None, 7)])
def test_the_group_of_success_ends_the_rank_and_so_does_one_that_fails(
    shell: str, success: str | None, code: int, tmp_path: Path
) -> None:
    after = f"until [ -e {tmp_path}/begun-workers ]; do sleep 0.01; done; exit {code}"
    workers = {"name": "workers", "nodes": 2, "run": f"echo > {tmp_path}/begun-workers; {WAITS}"}
    process = run(shell, tmp_path, 0, {"name": "head", "run": after}, workers, success=success)
    _, said = process.communicate(timeout=30)
    assert process.returncode == code
    assert said == (f"federator: group head has ended with exit code {code}\n" if code else "")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_program_that_is_not_there_is_named(shell: str, tmp_path: Path) -> None:
    process = run(shell, tmp_path, 0, {"name": "head", "command": ["no-such-program"]})
    _, said = process.communicate(timeout=30)
    assert process.returncode == 127
    assert "no-such-program" in said


@pytest.mark.parametrize("shell", SHELLS)
def test_a_group_that_is_told_to_leave_has_its_time_when_the_others_have_left(
    shell: str, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    begin = f"echo > {tmp_path}/begun-$FEDERATOR_GROUP; {WAITS}"
    process = run(
        shell, tmp_path, 0,
        {"name": "head", "run": f"trap 'exit 5' TERM; {begin}"},
        {"name": "workers", "nodes": 2, "run": f"trap 'sleep 0.3; echo > {saved}; exit 0' TERM; {begin}"},
    )  # fmt: skip
    begun(tmp_path, process)
    assert not list(tmp_path.glob("federator-*")), "what a kill would leave behind"
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=30)
    assert saved.exists()
    assert process.returncode == 5
