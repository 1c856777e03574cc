"""What a cloud's machine runs at first boot: the same for all clouds, but for how the machine hears that it is taken back."""

BOOT = """\
systemd-run --unit=federator-agent \
--setenv=FEDERATOR_USER_DATA_FILE="$FEDERATOR_USER_DATA_FILE" --setenv=FEDERATOR_AGENT_STATE_DIR="$FEDERATOR_AGENT_STATE_DIR" \
--setenv=FEDERATOR_NOTICES="$FEDERATOR_NOTICES" federator-agent serve"""
"""A unit of its own, so that cloud-init ends and the agent stays."""
_SCRIPT = """\
#!/bin/sh
# What Federator hands to its rented machines: read once, by root.
umask 077
dir="${{FEDERATOR_BOOT_DIR:-/var/lib/federator-agent}}"
mkdir -p "$dir"
cat >"$dir/user-data" <<'END_OF_USER_DATA'
{user_data}
END_OF_USER_DATA
export FEDERATOR_USER_DATA_FILE="$dir/user-data" FEDERATOR_AGENT_STATE_DIR="$dir/state" FEDERATOR_NOTICES={notices}
{boot}
"""


def boot_script(user_data: str, boot: str, notices: str) -> str:
    """A script that keeps the user data in a file, then runs `boot`. `notices`: whose metadata service tells of interruptions."""
    return _SCRIPT.format(user_data=user_data.rstrip("\n"), boot=boot, notices=notices)
