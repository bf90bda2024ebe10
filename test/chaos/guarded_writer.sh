#!/bin/sh
# Under `agent guard`: appends lines to a store's log and looks at nothing. Its clock, /proc/uptime
# (CLOCK_BOOTTIME), is cut to hundredths of a second; the beginning is noted as late as it may have
# been.
set -eu

now() {
  read -r up _ </proc/uptime
  ms="${up%.*}${up#*.}0"
}

now
printf '{"t":%s,"kind":"grant","id":"%s","node":"%s","store":"%s","epoch":%s,"deadlineMs":null}\n' \
  "$((ms + 10))" "$CHAOS_ID" "$ZIT_LEASE_NODE" "$ZIT_LEASE_STORE" "$ZIT_LEASE_EPOCH" \
  >>"$CHAOS_HISTORY"
seq=0
while [ "$seq" -lt "$CHAOS_WRITES" ]; do
  seq=$((seq + 1))
  now
  printf '{"t":%s,"id":"%s","node":"%s","epoch":%s,"seq":%s}\n' \
    "$ms" "$CHAOS_ID" "$ZIT_LEASE_NODE" "$ZIT_LEASE_EPOCH" "$seq" >>"$CHAOS_LOG"
  sleep 0.05
done
