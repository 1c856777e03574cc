# What a job's container runs first: waits for its work directory, sets up, and waits at the gate. Nothing of the job's command runs
# before the agent has opened it, and the agent has written down that it will before it does.
# Arguments: the set-up script, or nothing; then the command.
folder=/federator
gate=$folder/gate
job=$folder/job
setup=$1
shift
notes() { :; }
wait_for() {
  while [ ! -e "$1" ]; do
    notes
    sleep 0.1 2>/dev/null || sleep 1
  done
}
wait_for $gate/made
echo $$ >$job/pid.new && mv $job/pid.new $job/pid
if [ -e $gate/notes ]; then
  # What is said of its data while that is brought belongs into its log.
  exec 3<$gate/notes
  notes() { while IFS= read -r line <&3; do printf '%s\n' "$line"; done; }
fi
wait_for $gate/staged
notes
if [ -e $gate/notes ]; then exec 3<&-; fi
notes() { :; }
mkdir -p "$FEDERATOR_CHECKPOINT_DIR"
cd $folder/work || exit 126
if [ -n "$setup" ]; then
  /bin/sh -c "$setup" </dev/null
  code=$?
  if [ $code -ne 0 ]; then
    echo set-up >/dev/termination-log
    exit $code
  fi
fi
: >$job/ready
wait_for $gate/go
if [ -e $gate/resumes ] && [ "$FEDERATOR_RESUME" = 0 ]; then export FEDERATOR_RESUME=1; fi
. $gate/go
exec "$@" </dev/null
