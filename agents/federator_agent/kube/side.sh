# What runs beside a job: makes the folder that both share, moves its data, and stays until the job is over, or, when there are outputs to be fetched, until
# it is told to leave. Everything else it does by commands that the agent runs in it.
# Arguments: "stay", or nothing; where data is to be moved, what to move.
cd /federator
stay=$1
shift
mkdir -p gate job work home
chmod 1777 job
chmod 777 work home
carrier=
trap 'exit 0' TERM
if [ $# -gt 0 ]; then
  : >gate/notes
  (
    tries=0
    # -P: the job writes in this folder, and nothing that it puts there is to be imported.
    until python3 -P -m federator_agent.kube.data_mover "$@" 2>gate/carrying.err; do
      code=$?
      cat gate/carrying.err >&2
      tries=$((tries + 1))
      if [ $tries -ge 5 ]; then
        said="what moves its data ended with exit code $code: $(tail -n 1 gate/carrying.err)"
        printf 'REFUSED\n%s\n' "$said" >gate/unbrought.new && mv gate/unbrought.new gate/unbrought
        printf 'its last checkpoint could not be pushed: %s\n' "$said" >gate/saved.new && mv gate/saved.new gate/saved
        exit 1
      fi
      sleep 1
    done
  ) &
  carrier=$!
  # Its pod is ended, and the job with it: what that saves goes on its way before this ends.
  trap '[ -e gate/go ] || exit 0; : >gate/over; : >gate/leave' TERM
fi
: >gate/made
while [ ! -e gate/leave ]; do
  if [ -z "$stay" ] && [ -s job/pid ] && ! kill -0 "$(cat job/pid)" 2>/dev/null; then break; fi
  sleep 0.2
done
if [ -n "$carrier" ]; then
  while kill -0 $carrier 2>/dev/null; do wait $carrier; done
  [ ! -e gate/saved ] || { echo saved && cat gate/saved; } >/dev/termination-log
fi
exit 0
