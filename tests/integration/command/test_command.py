"""The command, a real dispatcher and a real agent: what the README promises a person, as that person would see it."""

import json
import signal
from pathlib import Path

import pytest

from federator.client import AsyncClient, Client
from tests.integration.command.conftest import Federation
from tests.support.waiting import PATIENCE_S, wait_until


def test_a_file_that_holds_only_run_is_submitted_runs_and_is_shown(
    federation: Federation, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text("run: echo hello from rank $FEDERATOR_NODE_RANK\n")
    job = federation.run("submit", str(tmp_path / "job.yaml")).stdout.strip()
    assert federation.run("wait", job).returncode == 0
    assert federation.run("logs", job).stdout == "hello from rank 0\n"
    assert "SUCCEEDED" in federation.run("list", "--mine").stdout
    shown = json.loads(federation.run("show", job, "-o", "json").stdout)
    assert (shown["job"]["status"], shown["site"]) == ("SUCCEEDED", "north")
    assert "north" in federation.run("explain", job).stdout


def test_code_goes_in_and_results_come_out(federation: Federation, tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "data").mkdir(parents=True)
    (code / "make.py").write_text("open('results/made.txt', 'w').write(open('data/in.txt').read().upper())")
    (code / "data/in.txt").write_text("shout")
    (code / "secret.log").write_text("stays at home")
    (code / ".gitignore").write_text("*.log\n")
    (code / "job.yaml").write_text(
        "name: make\nworkdir: .\nsetup: mkdir -p results\nrun: test ! -e secret.log && python3 make.py\noutputs: [results/**]\n"
    )
    assert federation.run("submit", "-f", "code/job.yaml", cwd=tmp_path).returncode == 0
    assert federation.run("wait", "make").returncode == 0
    assert federation.run("download", "make", cwd=tmp_path).stdout == "make/results/made.txt\n"
    assert (tmp_path / "make/results/made.txt").read_text() == "SHOUT"


def test_run_is_as_if_it_ran_here(federation: Federation, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys\nprint(os.environ['CUDA_VISIBLE_DEVICES'], sys.argv[1:])\nsys.exit(7)\n"
    )
    ran = federation.run(
        "run", "-q", "--gpus", "A100:2", "--", "python3", "train.py", "--lr", "1", cwd=tmp_path
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, "0,1 ['--lr', '1']\n", "")


def test_run_of_a_gang_shows_each_rank(federation: Federation) -> None:
    say = "echo $FEDERATOR_NODE_RANK of $FEDERATOR_NUM_NODES"
    ran = federation.run("run", "-q", "--nodes", "2", "--gpus", "4", "--", "sh", "-c", say)
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["[0] 0 of 2", "[1] 1 of 2"]


def test_ctrl_c_cancels_the_job_and_its_last_words_are_heard(federation: Federation) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo started; while :; do sleep 0.1; done"
    process = federation.start("run", "--name", "patient", "--", "sh", "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert out.endswith("saved\n")
    assert json.loads(federation.run("show", "patient", "-o", "json").stdout)["job"]["status"] == "CANCELLED"


def test_detached_it_is_held_released_updated_and_cancelled(federation: Federation) -> None:
    job = federation.run("run", "--detach", "--name", "long", "--", "sleep", "600").stdout.strip()
    wait_until(lambda: "RUNNING" in federation.run("show", job).stdout, "the job to run")
    assert "priority 70" in federation.run("update", "long", "--priority", "70").stdout
    asked = federation.run("hold", "long")
    assert (asked.returncode, "write --yes" in asked.stderr) == (6, True), "it would lose its work"
    held = federation.run("hold", "long", "--yes")
    assert "it starts from the beginning" in " ".join(held.stdout.split()), "it names no checkpoint"
    assert (
        "it starts from the beginning"
        in json.loads(federation.run("show", job, "-o", "json").stdout)["job"]["because"]
    )
    wait_until(lambda: "HELD" in federation.run("show", job).stdout, "the job to be held")
    assert federation.run("release", "long").returncode == 0
    wait_until(lambda: "RUNNING" in federation.run("show", job).stdout, "the job to run again")
    assert federation.run("cancel", "long").returncode == 0
    assert federation.run("wait", "long", "--timeout", "1m").returncode == 125


def test_an_arrays_name_means_all_its_tasks(federation: Federation, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: fleet\nrun: sleep 600\narray: 0-2\n")
    submitted = federation.run("submit", str(tmp_path / "job.yaml"), "--by", "3h")
    assert (submitted.returncode, "all 3 tasks done by" in submitted.stderr) == (0, True), submitted.stderr
    started = federation.run("wait", "fleet", "--for", "running")
    assert (started.returncode, "RUNNING" in started.stdout) == (0, True)
    wait_until(
        lambda: "3 RUNNING" in federation.run("list", "--name", "fleet").stdout,
        "all tasks to run",
    )
    cancelled = federation.run("cancel", "fleet")
    assert cancelled.returncode == 0
    assert "fleet[0-2]" in cancelled.stdout
    assert federation.run("wait", "fleet", "--timeout", "1m").returncode == 125
    again = federation.run("requeue", "fleet[0-1]", "fleet[2]")
    assert again.returncode == 6
    assert again.stderr.count("has ended: CANCELLED (submit it again") == 2


def test_an_array_is_followed_by_index_and_as_one(federation: Federation, tmp_path: Path) -> None:
    script = "echo $FEDERATOR_ARRAY_INDEX > out.txt; cat out.txt"
    (tmp_path / "job.yaml").write_text(
        f"name: sweep\nrun: {script}; test $FEDERATOR_ARRAY_INDEX != 5\narray: 3-5%2\noutputs: [out.txt]\n"
    )
    jobs = federation.run("submit", str(tmp_path / "job.yaml")).stdout.split()
    assert len(jobs) == 3
    assert federation.run("wait", "sweep").returncode == 1
    assert federation.run("logs", "sweep[4]").stdout == "4\n"
    shown = federation.run("show", "sweep").stdout
    assert "1 FAILED, 2 SUCCEEDED" in shown
    assert "sweep[5]  FAILED, exit-code 1" in shown
    into = tmp_path / "all"
    assert federation.run("download", "sweep", "--into", str(into)).returncode == 0
    assert (into / "4/out.txt").read_text() == "4\n"
    (again,) = federation.run("rerun", "sweep", "--failed").stdout.split()
    assert federation.run("wait", "sweep").stdout.startswith("FAILED  sweep[5]")
    assert json.loads(federation.run("show", "sweep[5]", "-o", "json").stdout)["job"]["id"] == again
    assert federation.run("logs", "sweep[4]").stdout == "4\n", "of the array before"


def test_what_cannot_run_is_explained_before_and_after(federation: Federation, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: toobig\nrun: x\nresources: {gpus: 8}\n")
    assert "8 GPUs per node" in federation.run("preview", str(tmp_path / "job.yaml")).stdout
    assert federation.run("show", "toobig").returncode == 3, "a preview stores nothing"
    federation.run("submit", str(tmp_path / "job.yaml"))
    wait_until(lambda: "ask for 4 GPUs" in federation.run("explain", "toobig").stdout, "the plan's reasons")
    federation.run("cancel", "toobig")


@pytest.mark.parametrize(
    "words",
    ["sites", "site show north", "queues", "offers", "leases", "budgets", "policy show", "policy history", "decisions list",
     "ledger", "top", "list --limit 0"],
)  # fmt: skip
@pytest.mark.parametrize("output", ["table", "json"])
def test_every_list_is_answered_and_understood(words: str, output: str, federation: Federation) -> None:
    ran = federation.run(*words.split(), *([] if words == "top" else ["-o", output]))
    assert ran.returncode == 0, ran.stderr
    if output == "json" and words != "top":
        json.loads(ran.stdout)


def test_people_with_their_own_tokens_do_what_their_role_allows(federation: Federation) -> None:
    token = federation.run("token", "create", "ada", "--role", "user").stdout.strip()
    ran = federation.run("run", "-q", "--token", token, "--name", "of-ada", "--", "true")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(federation.run("show", "of-ada", "-o", "json").stdout)["job"]["owner"] == "ada"
    assert federation.run("burst", "pause", "--token", token).returncode == 5
    assert federation.run("token", "revoke", "ada").stdout == "1 revoked\n"
    assert federation.run("list", "--token", token).returncode == 5


async def test_the_sdk_does_the_same(federation: Federation) -> None:
    address, token = (
        (federation.folder / "state" / name).read_text().strip() for name in ("address", "admin.token")
    )
    async with AsyncClient(address, token) as client:
        submitted = await client.submit("run: echo from python\n")
        assert (await client.wait(submitted.jobs[0])).job.status == "SUCCEEDED"
        assert b"".join([chunk async for chunk in client.logs(submitted.jobs[0])]) == b"from python\n"
        results = [result async for result in client.submit_many({"run": f"echo {n}"} for n in range(40))]
        assert [result.line for result in results] == list(range(1, 41))
        assert all(result.submitted for result in results)


def test_the_blocking_sdk_too(federation: Federation) -> None:
    address, token = (
        (federation.folder / "state" / name).read_text().strip() for name in ("address", "admin.token")
    )
    with Client(address, token) as client:
        assert [site.name for site in client.sites()] == ["north"]


def test_a_model_or_a_site_that_is_not_there_is_said_at_once(federation: Federation, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: typo\nrun: x\nresources: {gpus: 'A1000:1'}\n")
    ran = federation.run("submit", str(file))
    assert (ran.returncode, ran.stderr.startswith("note: no site has A1000; A100 would ")) == (0, True), (
        ran.stderr
    )
    assert federation.run("cancel", "typo").returncode == 0
    ran = federation.run("run", "--detach", "--name", "typed", "--gpus", "A1000", "--", "x")
    assert ran.stderr.startswith("note: no site has A1000; A100 would ")
    assert federation.run("cancel", "typed").returncode == 0
    ran = federation.run("run", "--detach", "--name", "typed", "--site", "nroth", "--", "x")
    assert ran.stderr == "note: there is no site nroth (did you mean north?)\n"
    assert federation.run("cancel", "typed").returncode == 0
    file.write_text("name: fine\nrun: 'true'\nresources: {gpus: 'A100:1'}\nplacement: {sites: [north]}\n")
    assert "note" not in federation.run("submit", str(file)).stderr
