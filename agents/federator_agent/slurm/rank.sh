#!/bin/bash
# rank.sh DIR GPUS GATE_S: one rank of a placement, started on its node by srun. It outlives the agent, and says in files of DIR what becomes of it:
#   at-gate-RANK   it is there: the number of its Slurm job, its node
#   devices-RANK   which GPUs it has, for a shell
#   started-RANK   its command is about to begin: when
#   told-RANK      it was told to end: by which signal. Whether the agent sent it, the agent knows
#   exit-RANK      its command has ended: the code, when
# It waits at the gate until DIR/go names the one Slurm job that may run. Whatever number that is, a second job of this placement never gets through.
dir=$1 gpus=$2 gate_s=$3 rank=$SLURM_PROCID
cd "$dir" || exit 74

# A file of that name is whole, or is not there.
put() {
    printf '%s\n' "$2" >".$1.new" && { sync ".$1.new" 2>/dev/null || true; } && mv -f ".$1.new" "$1"
}

# Slurm signals this process, or everything it has started, depending on how the site tracks processes: the command is a process group of its own and gets it from here.
asked='' child=''
pass_on() {
    asked=$1
    case $1 in TERM | INT | HUP) echo "$1" >"told-$rank" ;; esac
    [ -z "$child" ] || kill -s "$1" -- "-$child" 2>/dev/null
}
signals='HUP INT QUIT TERM USR1 USR2'
for name in $signals; do
    # shellcheck disable=SC2064
    trap "pass_on $name" "$name"
done

put "at-gate-$rank" "$SLURM_JOB_ID $SLURMD_NODENAME" || exit 74
SECONDS=0
until [ -e go ] || [ -n "$asked" ]; do
    [ "$SECONDS" -lt "$gate_s" ] || exit 75 # nobody has come: the nodes are wanted by others
    sleep 0.1
    ls >/dev/null # on NFS a look at the directory is what shows that there is something new in it
done
if [ -n "$asked" ]; then
    put "exit-$rank" "143 $(date +%s.%N)"
    exit 143
fi
read -r admitted <go
[ "$admitted" = "$SLURM_JOB_ID" ] || exit 76

# Slurm names all GPUs that the job has on this node; of several ranks here, each takes its share.
for name in CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES; do
    IFS=, read -ra devices <<<"${!name-}"
    if [ "$gpus" -gt 0 ] && [ "${#devices[@]}" -gt "$gpus" ]; then
        mine=("${devices[@]:SLURM_LOCALID * gpus:gpus}")
        export "$name=$(IFS=,; printf '%s' "${mine[*]}")"
    fi
done
[ "$gpus" -gt 0 ] || export CUDA_VISIBLE_DEVICES=
# For commands that enter this rank later: they see the same devices.
for name in CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES; do
    if [ -z "${!name+set}" ]; then echo "unset $name"; else printf 'export %s=%q\n' "$name" "${!name}"; fi
done >"devices-$rank"

put "started-$rank" "$(date +%s.%N)" || exit 74
set -m # what runs in the background leads a process group
(
    # Signals for the group are for the command; this shell waits for it in the foreground, which alone gives its true code.
    trap : $signals
    bash "command-$rank" </dev/null >>"rank-$rank/log" 2>&1
    code=$?
    trap '' $signals # nor may they hit those that write the mark
    until put "exit-$rank" "$code $(date +%s.%N)"; do
        sleep 5 # a full disk must not turn an end into a loss
    done
) &
child=$!
[ -z "$asked" ] || pass_on "$asked"
while kill -0 "$child" 2>/dev/null; do
    wait "$child" # which a signal ends, too, and a command that is stopped for a while
    sleep 0.05
done
kill -s KILL -- "-$child" 2>/dev/null
[ -e "exit-$rank" ] || put "exit-$rank" "137 $(date +%s.%N)"
read -r code _ <"exit-$rank"
exit "$code"
