"""Plain manifests for those who have no Helm, made from the chart: `make manifests`.

Each example of values in `deploy/chart/examples` becomes a file of `deploy/kubernetes`. They are committed, and a test holds them to the chart.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "chart"
PLAIN = ROOT / "deploy" / "kubernetes"
NAMESPACE = "federator"
HEAD = """# Made from deploy/chart/examples/{name}.yaml by `make manifests`. Edit a copy of that and make your own, or set here what is yours; {more}
"""
MORE = {
    "agent": "docs/howto/kubernetes-site.md goes through it. Jobs' namespace and the rights of the agent are in it.",
    "dispatcher": "docs/howto/run-on-kubernetes.md goes through it.",
    "dispatchers-etcd": "docs/howto/run-on-kubernetes.md goes through it.",
    "multikueue": "docs/howto/beside-multikueue.md goes through it. It goes beside federator-operator.yaml.",
    "operator": "docs/howto/federated-jobs.md goes through it. Apply federatedjobs.yaml first.",
}


def helm() -> str:
    """The program: of this machine, or the one that `make testbed-helm` has got; empty: neither."""
    cache = Path(os.environ.get("FEDERATOR_TESTBEDS") or Path.home() / ".cache" / "federator")
    got = cache / "helm" / "helm"
    return shutil.which("helm") or (str(got) if got.exists() else "")


def rendered(name: str) -> str:
    """The manifest of one example. Raises `CalledProcessError`, with Helm's complaint on standard error."""
    words = [
        helm(),
        "template",
        "federator",
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--set",
        "createReleaseNamespace=true",
    ]
    values = CHART / "examples" / f"{name}.yaml"
    made = subprocess.run(
        [*words, "--values", str(values)], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return (
        HEAD.format(name=name, more=MORE[name])
        + "\n".join(line.rstrip() for line in made.splitlines())
        + "\n"
    )


def main() -> None:
    """Write them all."""
    if not helm():
        sys.exit("There is no helm here: install it, or run make testbed-helm.")
    for name in MORE:
        (PLAIN / f"federator-{name}.yaml").write_text(rendered(name))


if __name__ == "__main__":
    main()
