# Rank 0 has the scheduler and runs the command, whose Client() finds it; each rank has a worker.
export DASK_SCHEDULER_ADDRESS="tcp://$MASTER_ADDR:$MASTER_PORT"
worker() {
  again dask worker "$DASK_SCHEDULER_ADDRESS" --name "rank-$FEDERATOR_NODE_RANK" --nthreads "$FEDERATOR_CPUS_PER_NODE" \
    ${FEDERATOR_MEMORY_MIB_PER_NODE:+--memory-limit "${FEDERATOR_MEMORY_MIB_PER_NODE}MiB"} --local-directory "$folder" --no-dashboard
}
first || worker
dask scheduler --host "$MASTER_ADDR" --port "$MASTER_PORT" --no-dashboard &
worker &
"$@"
