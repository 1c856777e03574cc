# Rank 0 has the head and runs the command, whose ray.init() finds it; the others have a worker each.
case $MASTER_ADDR in 127.*) MASTER_ADDR=$(python3 -c 'import ray; print(ray.util.get_node_ip_address())') || exit 127 ;; esac # it does not listen there
export RAY_ADDRESS="$MASTER_ADDR:$MASTER_PORT"
node() {
  ray start --disable-usage-stats --num-cpus="$FEDERATOR_CPUS_PER_NODE" --num-gpus="$FEDERATOR_GPUS_PER_NODE" \
    --min-worker-port=0 --max-worker-port=0 "$@"
}
worker() {
  ray health-check --address "$RAY_ADDRESS" 2>/dev/null && node --address="$RAY_ADDRESS" --block
}
first || again worker
node --head --port="$MASTER_PORT" --include-dashboard=false --temp-dir="$folder" >&2 || exit
"$@"
