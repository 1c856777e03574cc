while [ "$running" -gt 0 ]; do
  read -r name code <&3 || continue # a signal came between
  running=$((running - 1))
  [ "$result" -ne 0 ] || result=$code
  [ -z "$told" ] || continue
  [ "$code" -eq 0 ] || { echo "federator: group $name has ended with exit code $code" >&2; break; }
  [ "$name" != "$success" ] || [ "$FEDERATOR_NODE_RANK" -ne 0 ] || break
done
exit "$result"
