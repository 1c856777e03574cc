"""What is opened to a job of another user: its own directory, and nothing that a link there leads to."""

from pathlib import Path

from federator_agent.kube.data_mover import _open_to_all


def test_what_links_lead_to_is_left_as_it_is(tmp_path: Path) -> None:
    theirs, saved = tmp_path / "theirs", tmp_path / "saved"
    (saved / "step").mkdir(parents=True, mode=0o700)
    theirs.mkdir(mode=0o700)
    (theirs / "key").touch(mode=0o600)
    (saved / "folder").symlink_to(theirs)
    (saved / "file").symlink_to(theirs / "key")
    _open_to_all(saved)
    assert theirs.stat().st_mode & 0o777 == 0o700
    assert (theirs / "key").stat().st_mode & 0o777 == 0o600
    assert (saved / "step").stat().st_mode & 0o777 == 0o777
