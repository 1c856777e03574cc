"""Resolve the dependencies in pyproject.toml and write the locks under requirements/.

`dev.txt` is everything that the checks, the tests and the laboratory use. The others are pinned to the same versions: `demo.txt` is what a running federation needs, with the build
backend that installs the project in place; `dispatcher.txt` and `agent.txt` are what is installed at a site or a centre, by the installer and in the images, `pip.txt` what puts it into the images; `docs.txt` builds the
documentation's site. Of all that an agent needs there must be a wheel for 64-bit ARM, too: nothing is built at a site. All carry hashes and none names an index, so that they work wherever pip has been pointed. Run by `make lock`; arguments go on to pip-compile: `make lock ARGS=--upgrade`.
"""

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = [
    "--quiet",
    "--generate-hashes",
    "--strip-extras",
    "--allow-unsafe",
    "--no-emit-options",
    "--no-annotate",
]
ROLES = {
    "agent": ("gpu", "kubernetes", "aws", "traces"),
    "dispatcher": ("dispatcher", "etcd", "aws", "gcp", "kubernetes", "traces"),
}
"""What is installed by lock, and with which extras; the operator of `FederatedJob` is run from the dispatcher's."""


def main() -> None:
    """Write the locks, the larger one first: what suits all of it suits a part, and the smaller one is held to its versions."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, groups = declared["project"], declared["dependency-groups"]
    running = project["dependencies"] + project["optional-dependencies"]["dispatcher"] + groups["build"]
    optional = project["optional-dependencies"]
    extras = [
        each
        for extra in ("gpu", "kubernetes", "etcd", "aws", "gcp", "ssh", "traces")
        for each in optional[extra]
    ]
    compile_lock("dev", running + extras + groups["dev"] + groups["lab"], [])
    compile_lock("demo", running, ["--constraint=requirements/dev.txt"])
    for role, wanted in ROLES.items():
        needs = project["dependencies"] + [each for extra in wanted for each in optional[extra]]
        compile_lock(role, needs, ["--constraint=requirements/dev.txt"])
    check_wheels("agent", "manylinux2014_aarch64", "manylinux_2_28_aarch64")
    compile_lock("pip", ["pip>=26"], [])
    compile_lock("docs", groups["docs"], ["--constraint=requirements/dev.txt"])


def compile_lock(name: str, wanted: list[str], options: list[str]) -> None:
    """Write requirements/NAME.txt from what is wanted."""
    print(f"Resolving requirements/{name}.txt ...", flush=True)
    command = [sys.executable, "-m", "piptools", "compile", *OPTIONS, *options, *sys.argv[1:]]
    command += [f"--output-file=requirements/{name}.txt", "-"]
    environment = {**os.environ, "CUSTOM_COMPILE_COMMAND": "make lock"}
    subprocess.run(command, check=True, cwd=ROOT, env=environment, input="\n".join(wanted), text=True)


def check_wheels(name: str, *platforms: str) -> None:
    """Fail where a package of that lock has no wheel for any of these platforms."""
    print(f"Looking for the wheels of requirements/{name}.txt for {platforms[0]} ...", flush=True)
    options = [
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        "--python-version=3.11",
        *(f"--platform={each}" for each in platforms),
    ]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", *options, f"--dest={folder}"]
        subprocess.run([*command, f"--requirement=requirements/{name}.txt"], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
