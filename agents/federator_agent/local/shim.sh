#!/bin/sh
# shim.sh RANK_DIR WORK_DIR PYTHON PACKAGES COMMAND...: stands over one rank of a job, and outlives the agent that started it.
#
# The agent has opened RANK_DIR/lock, locked it and passed it on as descriptor 9, so the lock is held from before this process
# exists until after it has written the exit code. The command does not inherit it. Who can take the lock knows that no shim
# runs; then RANK_DIR/exit has the code, or RANK_DIR/shim is absent (never started), or the rank is lost.
dir=$1 work=$2 python=$3 packages=$4 late=
shift 4
# Who I am, before anything of the job exists: my line of /proc (start time in it) and the boot that my pid belongs to.
read -r stat </proc/$$/stat && read -r boot </proc/sys/kernel/random/boot_id &&
    printf '%s\n%s\n' "$stat" "$boot" >"$dir/shim" || exit 74
if [ -n "$python" ]; then
    # The rank may have to end without its agent: what sees to that is there first, and says whether there is time left. Its
    # environment is not the job's, so that it is neither taken for a part of it nor changed by it.
    env -i PYTHONPATH="$packages" "$python" -S -m federator_agent.local.watchdog "$dir" 9>&- || late=1
fi
if [ -n "$late" ]; then
    code=143
elif cd "$work"; then
    # The agent sends nothing to this process. A TERM is from outside, as a host sends it to everybody when it shuts down: it is
    # noted, before the exit code is, and the command has its time to save itself. What it does by default the command gets again.
    trap ': >"$dir/told"' TERM
    # In the foreground: a background command of a shell would have INT and QUIT ignored.
    setsid -- "$@" 9>&-
    code=$?
    trap '' TERM
else
    code=126
fi
# One short write; a reader takes the code as written only with its end of line.
echo "$code" >"$dir/exit"
