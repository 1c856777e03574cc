"""Build the container images of dispatcher and agent: `make images`.

Two steps. Every wheel that goes into an image is loaded here, checked by hash against `requirements/ROLE.txt`, and ours is built from this tree. Then docker, podman or buildah, whichever
there is, builds `deploy/images/Containerfile` with nothing but those. Where there is no engine, buildah needs no daemon and no root.
"""

import argparse
import platform
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTEXT = ROOT / "build" / "images"
ROLES = ("agent", "dispatcher")
ENGINES = ("docker", "podman", "buildah")
UNUSED = ("pandas",)
"""What the modelling layer of OR-Tools asks for: 84 MB of which nothing is imported here, as `federator.solving.glop` is the one door to it."""
GLIBC_MINOR = 36
"""The base's C library is 2.36 or newer, as in Debian 12."""
EPOCH = "1704067200"
"""The time of every file and of the image itself, so that two builds are the same bytes."""


def main() -> None:
    """Build what the command line says."""
    parser = argparse.ArgumentParser(
        prog="make images", description="Build the images of dispatcher and agent."
    )
    parser.add_argument("roles", nargs="*", default=ROLES, help="agent, dispatcher; both when left out")
    parser.add_argument("--engine", help="docker, podman or buildah; default: the first that is there")
    parser.add_argument("--base", default="", help="the image to build on; default: see the Containerfile")
    parser.add_argument(
        "--name", default="", help="what stands before the images' names, such as registry.example.org/ai/"
    )
    options, more = parser.parse_known_args()
    engine = options.engine or next(filter(shutil.which, ENGINES), None)
    if engine is None:
        sys.exit("There is no docker, podman or buildah here; buildah needs neither root nor a daemon.")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    gather(options.roles)
    for role in options.roles:
        tag = f"{options.name}federator-{role}:{version}"
        build(engine, role, tag, options.base, version, more)
        print(f"{tag}  {(CONTEXT / f'{role}.id').read_text()}", flush=True)


def gather(roles: list[str]) -> None:
    """Fill the context: a folder of wheels for each role, pip, and what writes down what there is."""
    shutil.rmtree(CONTEXT, ignore_errors=True)
    CONTEXT.mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "sbom.py", CONTEXT)
    ours = wheel_of_this_tree(CONTEXT)
    for role in roles:
        load_wheels(role, CONTEXT / role)
        shutil.copy(ours, CONTEXT / role)
    ours.unlink()
    load_pip(CONTEXT / "pip")


def wheel_of_this_tree(folder: Path) -> Path:
    """Build it there. Raises `CalledProcessError`."""
    _pip("wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}", str(ROOT))
    (ours,) = folder.glob("federator-*.whl")
    return ours


def load_pip(folder: Path) -> None:
    """Load what installs the rest, as not every Python has it. Raises `CalledProcessError`."""
    lock = ROOT / "requirements" / "pip.txt"
    _pip("download", "--require-hashes", "--no-deps", f"--dest={folder}", f"--requirement={lock}")


def load_wheels(role: str, folder: Path) -> None:
    """Load what the role needs, each checked by its hash, but for what is never used. Raises `CalledProcessError`."""
    print(f"Loading what the {role} needs ...", flush=True)
    machine = platform.machine().replace("arm64", "aarch64").replace("AMD64", "x86_64")
    flavours = [f"--platform=manylinux_2_{minor}_{machine}" for minor in range(GLIBC_MINOR, 16, -1)]
    flavours.append(f"--platform=manylinux2014_{machine}")
    wanted = ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp", *flavours]
    lock = ROOT / "requirements" / f"{role}.txt"
    _pip("download", "--require-hashes", "--no-deps", *wanted, f"--dest={folder}", f"--requirement={lock}")
    for name in UNUSED:
        for wheel in folder.glob(f"{name}-*"):
            wheel.unlink()


def build(engine: str, role: str, tag: str, base: str, version: str, more: list[str]) -> None:
    """Have the engine build one image. Raises `CalledProcessError`."""
    arguments = {"ROLE": role, "VERSION": version} | ({"BASE": base} if base else {})
    if engine == "docker":
        arguments["SOURCE_DATE_EPOCH"] = EPOCH
        same = ["--output=type=docker,rewrite-timestamp=true", "--provenance=false"]
    else:
        same = [f"--timestamp={EPOCH}"]
    command = [engine, "build", f"--target={role}", f"--tag={tag}", f"--iidfile={CONTEXT / role}.id"]
    command += [f"--file={ROOT / 'deploy' / 'images' / 'Containerfile'}", *same, *more]
    command += [f"--build-arg={key}={value}" for key, value in arguments.items()]
    subprocess.run([*command, str(CONTEXT)], check=True)


def _pip(*words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words], check=True
    )


if __name__ == "__main__":
    main()
