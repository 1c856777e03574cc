# One rank of a job that does nothing but say that it lives: where it is, its start, a beat now and then and its end, each with the boot clock.
# It runs wherever a shell does. Where it can reach the journal, a file there is its own; in a pod, one in its job's checkpoints, which outlive it.
#
#   JOURNAL BEATS [GATE]    so many beats of a fifth of a second; or until the file GATE is there, in a pod one of that name beside its own
journal=$1 beats=$2 gate=$3
[ -d "$journal" ] || journal=$FEDERATOR_CHECKPOINT_DIR gate=$FEDERATOR_CHECKPOINT_DIR/${3##*/}
exec >>"$journal/$FEDERATOR_JOB_ID.$FEDERATOR_PLACEMENT_ID.$FEDERATOR_NODE_RANK.$$"
say() { read -r up _ </proc/uptime && echo "$1 $up"; }
echo "at $FEDERATOR_SITE ${SLURMD_NODENAME:-$(hostname):$PWD}"
trap 'say stopped; exit 0' TERM
say start
while [ "$beats" -gt 0 ] && ! [ -f "$gate" ]; do
  sleep 0.2
  beats=$((beats - 1))
  say beat
done
say end
