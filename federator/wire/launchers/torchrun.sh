# Each rank runs torchrun, which starts its processes; where to meet it reads from PET_*. With restarts it agrees anew on who is there when a process has failed.
[ "$processes" -eq 0 ] || set -- --nproc-per-node="$processes" "$@"
if [ "$restarts" -gt 0 ]; then
  here=0
  [ "$FEDERATOR_NODE_RANK" -ne 0 ] || here=1
  export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 # in the store that it meets by, the processes that start again would find those that are gone
  set -- --rdzv-backend=c10d --rdzv-conf="is_host=$here" --max-restarts="$restarts" "$@"
fi
exec torchrun "$@"
