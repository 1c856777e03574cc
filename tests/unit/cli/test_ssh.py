"""What `ssh-config` writes, and where."""

import stat
from pathlib import Path

import pytest

from federator.cli import ssh
from federator.kernel.errors import Invalid


def test_our_file_comes_first_and_once_and_the_rest_stays(tmp_path: Path) -> None:
    dotfiles = tmp_path / "dotfiles"
    dotfiles.write_text("Host mine\n  Port 7\n")
    config, ours = tmp_path / ".ssh/config", tmp_path / "set/ssh_config"
    config.parent.mkdir()
    config.symlink_to(dotfiles)
    for entries in ("Host a.federator\n", "Host b.federator\n"):
        ssh.include(ours, entries, config)
    assert dotfiles.read_text() == f'Include "{ours}"\nHost mine\n  Port 7\n'
    assert config.is_symlink()
    assert ours.read_text() == "Host b.federator\n"
    assert stat.S_IMODE(ours.stat().st_mode) == stat.S_IMODE(dotfiles.stat().st_mode) == 0o600


def test_who_has_no_configuration_gets_one(tmp_path: Path) -> None:
    ssh.include(tmp_path / "ours", "Host a.federator\n", tmp_path / ".ssh/config")
    assert (tmp_path / ".ssh/config").read_text() == f'Include "{tmp_path}/ours"\n'
    assert stat.S_IMODE((tmp_path / ".ssh").stat().st_mode) == 0o700


def test_a_host_has_letters_that_ssh_takes() -> None:
    assert ssh.host_name("sweep[3]", 0) == "sweep.3.federator"
    assert ssh.host_name("a b; rm -rf /", 2) == "a.b.rm.-rf.2.federator"


def test_no_word_reaches_the_shell_or_ssh_as_more_than_a_word() -> None:
    assert ssh.as_written(["x", "$(id) %h'"]) == """x '$(id) %%h'"'"''"""
    with pytest.raises(Invalid, match="cannot be printed"):
        ssh.as_written(["x\n  ProxyCommand id"])
