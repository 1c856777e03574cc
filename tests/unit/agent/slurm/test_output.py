"""What is read out of Slurm's commands, on recordings of 22.05 and on what other versions and people may write."""

from pathlib import Path

from federator_agent.slurm.output import (
    QUEUE_COLUMNS,
    Job,
    last_words,
    read_nodes,
    read_other_jobs,
    read_partitions,
    read_queue,
)

RECORDED = Path(__file__).parent / "recorded"


def _recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def _line(*words: str) -> str:
    return "".join(word.ljust(width) for word, (_, width) in zip(words, QUEUE_COLUMNS, strict=True))


def test_the_queue() -> None:
    jobs = {job.name: job for job in read_queue(_recorded("queue.txt"))}
    assert jobs["pl-1"] == Job("1", "pl-1", "RUNNING", "None", False, 1795257329.0)
    assert (jobs["pl-2"].state, jobs["pl-2"].over) == ("FAILED", True)
    assert (jobs["big"].state, jobs["big"].reason, jobs["big"].over) == ("PENDING", "Resources", False)
    assert jobs["strange |=name Reason=none JobId=7"].id == "2"


def test_a_preempted_job_has_its_time() -> None:
    [job] = read_queue(_line("9", "FAILED", "NonZeroExitCode", "1795256626", "1795256624", "0", "pl-9"))
    assert job.preempted


def test_a_job_that_was_put_back_into_the_queue_says_how_often() -> None:
    [job] = read_queue(_line("9", "PENDING", "BeginTime", "N/A", "1795256624", "2", "pl-9"))
    assert (job.restarts, job.over) == (2, False)


def test_an_unknown_state_is_not_over() -> None:
    [job] = read_queue(_line("9", "HALF_DONE", "", "N/A", "N/A", "", "pl-9"))
    assert (job.over, job.submitted_at) == (False, None)


def test_lines_that_are_none_are_passed_over() -> None:
    text = (
        "slurm_load_jobs: hello\n\n"
        + _line("3_7", "RUNNING", "", "", "", "", "array")
        + "\n"
        + _line("4", "RUNNING", "", "", "", "", "x")
    )
    assert [job.id for job in read_queue(text)] == ["4"]


def test_nodes() -> None:
    nodes = read_nodes(_recorded("nodes.txt"))
    assert [node.name for node in nodes] == ["n0", "n1", "n2", "n3"]
    first, second, _, last = nodes
    assert first.gpus == {"a100": (8, 8)}
    assert second.gpus == {"a100": (8, 4)}
    assert (first.cpus, first.cpus_taken, first.memory_mib, first.memory_taken_mib) == (32, 4, 65536, 400)
    assert first.partitions[:2] == ("main", "local")
    assert first.states == {"MIXED"}
    assert last.states == {"IDLE", "DRAIN", "PLANNED"}
    assert first.address == "127.0.0.1"


def test_odd_nodes() -> None:
    text = (
        "NodeName=a State=DOWN*+DRAIN CPUTot=8 Gres=gpu:4(S:0-1) GresUsed=gpu:(null):1(IDX:0) RealMemory=1000 MemSpecLimit=200\n"
        "NodeName=b State=IDLE# Gres=(null) NewField=x Partitions=p\n"
        "NodeName=c State=IDLE Gres=gpu:v100:2(S:0),gpu:a100:4(S:1),shard:a100:8 GresUsed=gpu:v100:1(IDX:0),gpu:a100:0(IDX:N/A)\n"
    )
    a, b, c = read_nodes(text)
    assert a.states == {"DOWN", "DRAIN", "NOT_RESPONDING"}
    assert (a.gpus, a.cpus, a.memory_mib, a.address) == ({"": (4, 1)}, 8, 800, "a")
    assert b.states == {"IDLE"}
    assert not b.gpus
    assert c.gpus == {"v100": (2, 1), "a100": (4, 0)}


def test_partitions() -> None:
    partitions = {each.name: each for each in read_partitions(_recorded("partitions.txt"))}
    assert (partitions["main"].up, partitions["main"].max_time_s) == (True, 86400.0)
    assert (partitions["local"].up, partitions["local"].max_time_s) == (True, None)
    assert partitions["single"].up is False
    assert not partitions["main"].default_memory
    [given] = read_partitions("PartitionName=x State=UP MaxTime=1-02:03:04 DefMemPerCPU=2048\n")
    assert (given.default_memory, given.max_time_s) == (True, 93784.0)


def test_other_jobs() -> None:
    jobs = {job.name.split()[0]: job for job in read_other_jobs(_recorded("jobs.txt"))}
    assert (jobs["pl-1"].gpus, jobs["pl-1"].nodes, jobs["pl-1"].partition) == (12, 2, "main")
    assert jobs["pl-1"].ends_at is not None
    assert (jobs["big"].gpus, jobs["big"].nodes, jobs["big"].state) == (32, 4, "PENDING")
    assert (jobs["held"].gpus, jobs["held"].ends_at) == (3, None)
    assert jobs["pl-2"].gpus == 0
    assert (jobs["pl-1"].host, jobs["big"].host) == ("n0", "")


def test_a_queue_without_jobs() -> None:
    assert read_other_jobs("No jobs in the system\n") == []
    assert read_queue("") == []


def test_last_words() -> None:
    step = "slurmstepd-n0: error: *** STEP 13.0 ON n0 CANCELLED AT 2026-11-21T09:47:41 ***\n"
    assert last_words(step) == ""
    job = "slurmstepd-n0: error: *** JOB 14 ON n0 CANCELLED AT 2026-11-21T09:47:47{} ***\n"
    assert last_words(step + job.format("")) == "CANCELLED"
    assert last_words(job.format(" DUE TO PREEMPTION")) == "PREEMPTED"
    assert last_words(job.format(" DUE TO TIME LIMIT")) == "TIMEOUT"
    assert (
        last_words(
            "*** JOB 14 ON n0 CANCELLED AT 2026-11-21T09:47:47 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
        )
        == "NODE_FAIL"
    )
