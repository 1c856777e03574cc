"""Which tests of real processes run one after the other, in one process, although several run at a time."""

CLUSTERS = {"kubernetes": ("/kube/", "[kube", "kube]"), "slurm": ("/slurm/", "[slurm", "slurm]")}
"""By these words in its name, a test needs the cluster that a process has once: those take turns."""
OWN = ("tests/federation/", "tests/system/")
"""They have clusters of their own."""
CONTRACT = "tests/contract/"
"""Half of what clusters do: two processes have one each, so that nobody waits for one of them alone."""
TOGETHER = ("tests/console/", "tests/integration/command/")
"""Folders of which all files share what is dear to start: a browser, or a dispatcher with its site."""
APART = (
    "docs/test_walkthroughs.py",
    "system/test_fleet.py",
    "system/test_kills.py",
    "system/test_leaders.py",
    "system/test_partitions.py",
    "system/test_site_control.py",
)
"""Files whose tests take long and share nothing; those of other files take turns, because of what the file has started."""


def turns(nodeid: str) -> str:
    """Tests for which this is the same run one after the other, in one process."""
    if not nodeid.startswith(OWN):
        for name, words in CLUSTERS.items():
            if any(word in nodeid for word in words):
                return f"{name}, contract" if nodeid.startswith(CONTRACT) else name
    if folder := next((each for each in TOGETHER if nodeid.startswith(each)), ""):
        return folder
    file = nodeid.partition("::")[0]
    return nodeid if file.endswith(APART) else file
