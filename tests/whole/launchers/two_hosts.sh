# SPDX-License-Identifier: Apache-2.0
# A job of tests/demo/train_ddp.py under torchrun on two hosts with two ranks each, which is switched on twice.
# Sourced. Uses $HERE, a directory; $BIN and $TREE, the programs and the sources; $PYTHON; the arrays host0 and
# host1, the words that run a command on a host; $address0 and $address1.
set -u
export OMP_NUM_THREADS=1 DYNAMIC_MONITOR=True MONITOR_OUTPUT_DIR=$HERE/monitor_output GLOO_SOCKET_IFNAME=eth0
export PYTHONPATH=$BIN/../python
# In the store that the agents share by default, Gloo finds the addresses of ranks that are dead: two agents of
# torch 2.13 cannot start ranks again without this, with or without gradmon.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
echo '{"dynamic_on": false, "wg_distribution": true, "ops": ["norm"], "step_count_per_record": 100}' >"$HERE/config.json"

printf '127.0.0.1 localhost\n%s host0\n%s host1\n' "$address0" "$address1" >"$HERE/hosts" # torchrun looks up names

# choose_host NUMBER: "${on_host[@]}" COMMAND... runs there from now on.
choose_host() {
  local -n words=host$1
  export XDG_RUNTIME_DIR=$HERE/host$1
  mkdir -p "$XDG_RUNTIME_DIR"
  on_host=("${words[@]}" unshare --mount sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$HERE/hosts")
}
ctl() { "${on_host[@]}" "$BIN/gradmonctl" "$@"; }

fail() {
  echo "$*" >&2
  ctl status >&2
  tail -n 30 "$HERE"/log* >&2
  exit 1
}

# until_true COMMAND...: waits at most 90 s.
until_true() {
  local deadline=$((SECONDS + 90))
  until "$@"; do
    [ $SECONDS -lt $deadline ] || fail "waited 90 s for: $*"
    sleep 0.2
  done
}

field() { ctl status --json 2>/dev/null | "$PYTHON" -c "import json, sys; s = json.load(sys.stdin); print($1)" 2>/dev/null; }
all_train() { [ "$(field 'sum(r["step"] > 3 and r["last_seen_ms"] < 2000 for r in s["ranks"])')" = 4 ]; }
is_new() { [ "$(field 's["ranks"][3]["pid"]')" != "$1" ] && all_train; }

# steps_of RANK: the collected steps in the rank's newest run directory.
steps_of() {
  local run
  run=$(ls -dt "$MONITOR_OUTPUT_DIR"/*-rank"$1"-* | head -n 1)
  cat "$run"/grad_reduced_[0-9]*.csv 2>/dev/null | awk -F, '$3 ~ /^[0-9]+$/ { print $3 }' | sort -nu | tail -n 2 | tr '\n' ' '
}
alike() {
  local rank
  for rank in 0 1 2 3; do [ "$(steps_of $rank)" = "$1 $(($1 + 1)) " ] || return 1; done
}
collect() {
  local first
  first=$(ctl on --collect-times 2 --wait) || fail "gradmonctl on failed"
  until_true grep -q '"dynamic_on": false' "$HERE/config.json"
  until_true alike "$first"
}
no_process() { ! grep -qsz "MONITOR_OUTPUT_DIR=$MONITOR_OUTPUT_DIR" /proc/[0-9]*/environ; }

for host in 1 0; do
  choose_host $host
  address=address$host
  "${on_host[@]}" "$(dirname "$PYTHON")/torchrun" --nnodes 2 --nproc-per-node 2 --max-restarts 2 \
    --rdzv-backend c10d --rdzv-id job --rdzv-endpoint "$address0:29511" --local-addr "${!address}" \
    "$TREE/tests/demo/train_ddp.py" --config "$HERE/config.json" --steps 100000000 --step-ms 20 --layers 1 \
    >"$HERE/log$host" 2>&1 &
done
trap 'kill $(jobs -p) 2>/dev/null' EXIT

until_true all_train
collect
echo "4 ranks collected the same steps"
victim=$(field 's["ranks"][3]["pid"]')
kill -KILL "$victim"
until_true is_new "$victim"
collect
echo "4 ranks collected the same steps after a rank was killed"
kill $(jobs -p)
wait
export -n MONITOR_OUTPUT_DIR
until_true no_process
echo "no process is left"
