"""A job's image as the programs of sites are told of it: each word, and that nothing of the job's has a say outside of its container."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from federator.kernel.errors import Invalid
from federator.model.jobs import JobSpec
from federator_agent import config
from federator_agent.images import (
    GIVEN,
    Contained,
    Engine,
    Images,
    Pull,
    beside,
    cleanup,
    given,
    notes,
    refuse,
    script,
)
from federator_agent.local.confinement import exports
from federator_agent.slurm.script import container_script
from federator_agent.staging_errors import StagingRefused

WORK = Path("/s/p 1/work")


def _told(
    tmp_path: Path, engine: Engine, variables: dict[str, str] | None = None, **fields: Any
) -> tuple[list[str], str]:
    """The words that a stub of the program gets, and what its command has read of its variables."""
    programs = tmp_path / "programs"
    programs.mkdir(exist_ok=True)
    stub = f"""#!/bin/sh
[ "$1" != import ] || {{ touch "$3"; printf '%s\\n' "$@" >{tmp_path}/imported; exit 0; }}
printf '%s\\n' "$@" >{tmp_path}/words; env >{tmp_path}/outside
while [ "$1" != /bin/sh ]; do shift; done
exec "$@"
"""
    (programs / engine).write_text(stub)
    (programs / engine).chmod(0o755)
    what: dict[str, Any] = {
        "name": "p1-0",
        "image": "lab/img:1",
        "command": ["/bin/sh", "-c", "env; exit 7"],
        "work": WORK,
    }
    run = Contained(**(what | fields))
    file = tmp_path / "given"
    file.write_bytes(exports(variables or {}))
    text = script(Images(engine=engine), run)
    ended = subprocess.run(
        ["/bin/sh", "-c", f"exec {GIVEN}<{file}\n{text}"], env={"PATH": f"{programs}:{os.defpath}", "HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": "2,3"},
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert ended.returncode in (7, 2) if fields.get("work") is None else (7,), ended.stderr
    return (tmp_path / "words").read_text().splitlines(), ended.stdout


def test_podman_is_told_all_of_it(tmp_path: Path) -> None:
    words, inside = _told(
        tmp_path,
        Engine.PODMAN,
        {"A": "it's\nhere"},
        user="5:60",
        gpus=True,
        writable=[Path("/s/ckpt")],
        readable=[Path("/s/in")],
        shm_mib=64,
    )
    image = words.index("lab/img:1")
    options = words[:image]
    assert options[:2] == ["run", "--rm"]
    for word in (
        "--name=p1-0", "--user=5:60", "--cap-drop=all", "--security-opt=no-new-privileges", f"--workdir={WORK}", f"--volume={WORK}:{WORK}",
        "--volume=/s/ckpt:/s/ckpt", "--volume=/s/in:/s/in:ro", "--shm-size=64m", "--init", "--cgroups=disabled", "--preserve-fds=1", "--pull=missing",
    ):  # fmt: skip
        assert word in options, word
    assert options[-4:] == ["--device", "nvidia.com/gpu=2", "--device", "nvidia.com/gpu=3"]
    assert "A=it's\nhere" in inside


def test_no_variable_of_a_jobs_reaches_the_program(tmp_path: Path) -> None:
    for engine in Engine:
        _, inside = _told(
            tmp_path, engine, work=tmp_path, variables={"LD_PRELOAD_OF_JOB": "/x", "SECRET": "hush"}
        )
        assert "SECRET=hush" in inside, engine
        assert "hush" not in (tmp_path / "outside").read_text(), engine
        assert "hush" not in (tmp_path / "words").read_text(), engine


@pytest.mark.parametrize("engine", [Engine.APPTAINER, Engine.ENROOT])
def test_a_command_beside_has_a_container_like_that_of_the_job(tmp_path: Path, engine: Engine) -> None:
    """These programs take nobody into a container that runs; the same options give one with the same folders and devices."""
    run = Contained("p1-0", "lab/img:1", ["nvidia-smi"], WORK, gpus=True, readable=[Path("/s/in")])
    assert beside(Images(engine=engine), run, tty=True) == script(Images(engine=engine), run)


def test_podman_takes_a_command_into_the_container(tmp_path: Path) -> None:
    run = Contained("p1-0", "lab/img:1", ["bash"], WORK)
    words = shlex.split(beside(Images(engine=Engine.PODMAN), run, tty=True))
    assert words[:3] == ["exec", "podman", "exec"]
    assert "--tty" in words
    assert words[words.index("p1-0") :][:2] == ["p1-0", "/bin/sh"]
    assert words[-1] == "bash"


def test_apptainer_runs_it_from_the_registry(tmp_path: Path) -> None:
    words, _ = _told(tmp_path, Engine.APPTAINER, gpus=True, readable=[Path("/s/in")])
    image = words.index("docker://lab/img:1")
    assert words[:image] == [
        "exec", "--cleanenv", "--contain", "--no-home", f"--pwd={WORK}", f"--bind={WORK}:{WORK}", "--bind=/s/in:/s/in:ro", "--nv",
    ]  # fmt: skip
    assert "APPTAINERENV_CUDA_VISIBLE_DEVICES=2,3" in (tmp_path / "outside").read_text()


@pytest.mark.parametrize(
    ("image", "where"),
    [
        ("lab/img:1", "docker://lab/img:1"),
        ("ghcr.io/lab/img:1", "docker://ghcr.io#lab/img:1"),
        ("localhost:5000/i", "docker://localhost:5000#i"),
    ],
)
def test_enroot_makes_a_file_of_it_once(tmp_path: Path, image: str, where: str) -> None:
    (tmp_path / "work").mkdir()
    words, _ = _told(tmp_path, Engine.ENROOT, image=image, work=tmp_path / "work")
    assert words[:3] == [
        "start",
        "--rw",
        f"--mount={tmp_path}/work:{tmp_path}/work:none:x-create=dir,bind,rw",
    ]
    assert (tmp_path / "imported").read_text().splitlines()[-1] == where
    (tmp_path / "imported").unlink()
    _told(tmp_path, Engine.ENROOT, image=image, work=tmp_path / "work")
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    "image",
    [
        "dir:/var/lib/federator-agent",
        "oci-archive:/x.tar",
        "docker-archive:x",
        "x:/etc",
        "containers-storage:i",
    ],
)
def test_an_image_is_no_place_of_the_host(image: str) -> None:
    with pytest.raises(StagingRefused, match="registry"):
        refuse(Images(engine=Engine.PODMAN), JobSpec(name="j", run="x", image=image))


@pytest.mark.parametrize(
    "image",
    [
        "a",
        "a:1",
        "lab/a:1",
        "ghcr.io/lab/a@sha256:00",
        "localhost:5000/a:1",
        "r.example.org:443/x/a:1@sha256:00",
    ],
)
def test_names_at_registries_are_taken(image: str) -> None:
    refuse(Images(engine=Engine.PODMAN), JobSpec(name="j", run="x", image=image))
    with pytest.raises(StagingRefused, match="no containers"):
        refuse(None, JobSpec(name="j", run="x", image=image))
    with pytest.raises(StagingRefused, match="set-up"):
        refuse(Images(engine=Engine.PODMAN), JobSpec(name="j", run="x", image=image, setup="y"))


def test_what_is_the_hosts_stays_outside() -> None:
    base = {"PATH": "/host/bin", "LANG": "C"}
    inside = given(base | {"LANG": "C", "A": "1", "CUDA_VISIBLE_DEVICES": "0", "a.b": "x"}, base)
    assert inside == {"HOME": "/tmp", "USER": "job", "LOGNAME": "job", "A": "1"}
    assert given({"HOME": "/own", "PATH": "/own/bin"}, base) == {
        "HOME": "/own",
        "USER": "job",
        "LOGNAME": "job",
        "PATH": "/own/bin",
    }


def said(text: str) -> Images | None:
    return config.parse(f"site: a\nimages: {text}", "site.yaml", {}).images


def test_the_words_of_the_site_file() -> None:
    assert said("podman") == Images(engine=Engine.PODMAN)
    assert said("{engine: enroot, pull: never}") == Images(engine=Engine.ENROOT, pull=Pull.NEVER)
    assert said("none") is None
    for wrong, where in (
        ("docker", r"\$\.images"),
        ("{pull: never}", r"images\.engine"),
        ("{engine: podman, pull: x}", r"images\.pull"),
    ):
        with pytest.raises(Invalid, match=where):
            said(wrong)


def test_check_says_what_is_here(tmp_path: Path) -> None:
    assert "neither" in notes(None, str(tmp_path))[0]
    (tmp_path / "apptainer").write_text("")
    (tmp_path / "apptainer").chmod(0o755)
    assert "images: apptainer" in notes(None, str(tmp_path))[0]
    assert notes(Images(engine=Engine.APPTAINER), str(tmp_path))[0].startswith("ok")
    assert not notes(Images(engine=Engine.ENROOT), str(tmp_path))[0].startswith("ok")
    assert cleanup(Images(engine=Engine.APPTAINER), "x") == []
    assert "--force" in cleanup(Images(engine=Engine.PODMAN), "x")


def test_under_slurm_the_variables_come_with_the_script_and_not_on_its_command_lines(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "podman").write_text(
        '#!/bin/sh\nprintf "%s\\n" "$@" >words\nwhile [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n'
    )
    (tmp_path / "podman").chmod(0o755)
    run = Contained(
        name="p1-0",
        image="lab/img:1",
        command=["/bin/sh", "-c", 'printf "%s|" "$SECRET"; exit 7'],
        work=tmp_path / "work",
    )
    text = container_script(script(Images(engine=Engine.PODMAN), run), {"SECRET": "it's\nhush $(x)"})
    ended = subprocess.run(
        ["bash", "-c", text],
        env={"PATH": f"{tmp_path}:{os.defpath}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (7, "it's\nhush $(x)|"), ended.stderr
    words = (tmp_path / "work" / "words").read_text()
    assert "hush" not in words
    assert f"--user={os.getuid()}:{os.getgid()}" in words
