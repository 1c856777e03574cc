# One rank of a job that does nothing but say that it lives: where it is, its start, a beat now and then and its end, each with the boot clock.
# It runs wherever a shell does. Where it can reach the journal, a file there is its own; in a pod, its output is, which the test takes from the node's disk.
#
#   JOURNAL BEATS [GATE]    so many beats of a fifth of a second; or until the file GATE is there
say() { read -r up _ </proc/uptime && echo "$1 $up"; }
[ -d "$1" ] && exec >>"$1/$FEDERATOR_JOB_ID.$FEDERATOR_PLACEMENT_ID.$FEDERATOR_NODE_RANK.$$"
echo "at $FEDERATOR_SITE ${SLURMD_NODENAME:-$(hostname):$PWD} $FEDERATOR_JOB_ID.$FEDERATOR_PLACEMENT_ID.$FEDERATOR_NODE_RANK"
trap 'say stopped; exit 0' TERM
say start
beats=$2
while [ "$beats" -gt 0 ] && ! { [ "$3" ] && [ -e "$3" ]; }; do
  sleep 0.2
  beats=$((beats - 1))
  say beat
done
say end
