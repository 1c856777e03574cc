# What runs beside a job: makes the folder that both share, and stays until the job is over, or, when there are outputs to be fetched, until it is told to
# leave. Everything else it does by commands that the agent runs in it.
# Arguments: "stay", or nothing.
cd /federator
mkdir -p gate work
chmod 1777 gate
chmod 777 work
: >gate/made
trap 'exit 0' TERM
while [ ! -e gate/leave ]; do
  if [ -z "$1" ] && [ -s gate/pid ] && ! kill -0 "$(cat gate/pid)" 2>/dev/null; then exit 0; fi
  sleep 0.2
done
