# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# tools/demo --full, which sources it: collects every kind of record, one after another, in one run of
# two ranks, by edits of the config file alone. Uses $bin.
ranks=2
build_preset release gradmonctl gradmon-train || exit 1
# shellcheck source=tests/demo/job.sh
source "$gradmon_root/tests/demo/job.sh"

# in_run_directories PREFIX: prints the CSV files with this prefix, of all ranks.
in_run_directories() { find "$MONITOR_OUTPUT_DIR" -name "$1_[0-9]*.csv" 2>/dev/null | sort; }

# step_of FILE: prints the step in the name of a CSV file.
step_of() { sed -n 's/.*_\([0-9]*\)-[0-9]*\(\.r[0-9]*\)\{0,1\}\.csv$/\1/p' <<<"$1"; }

# collect TITLE KEYS PREFIX...: edits the config file, waits until two steps have been
# collected, and prints the result. Fails unless each prefix has the same two steps on
# all ranks.
collect() {
  local title=$1 keys=$2 before steps files rows prefix file
  shift 2
  before=$(find "$MONITOR_OUTPUT_DIR" -name '*.csv' 2>/dev/null | sort)
  printf '{"dynamic_on": true, "collect_times": 2, "ops": ["norm", "min", "max", "mean", "nans", "zeros"],\n %s}\n' "$keys" >"$config.new"
  mv "$config.new" "$config"
  until_finished "$title"
  echo "$title"
  echo "   $keys"
  for prefix in "$@"; do
    files=$(comm -13 <(echo "$before") <(in_run_directories "$prefix"))
    steps=$(while read -r file; do step_of "$file"; done <<<"$files" | sort -n | uniq -c | awk '{print $1 ":" $2}')
    [ "$(wc -w <<<"$steps")" = 2 ] || fail "$title: $prefix has the steps (files:step) $(tr '\n' ' ' <<<"$steps"), expected two"
    [ "$(cut -d: -f1 <<<"$steps" | sort -u)" = "$ranks" ] || fail "$title: not every rank has files of $prefix (files:step): $steps"
    rows=$(while read -r file; do tail -n +2 "$file"; done <<<"$files" | wc -l)
    printf '   %-24s steps %s, %d rows on %s ranks: %s\n' "$prefix" "$(cut -d: -f2 <<<"$steps" | paste -sd' ')" "$rows" \
      "$ranks" "$(basename "$(head -n 1 <<<"$files")")"
    sed -n '1,2s/^/      /p' "$(head -n 1 <<<"$files")"
  done
}

# until_finished TITLE: waits until the collection has finished on all ranks, and the
# config file says dynamic_on: false.
until_finished() {
  local deadline=$((SECONDS + 60))
  until grep -q '"dynamic_on": false' "$config" && ctl status 2>/dev/null | head -n 1 | grep -q finished; do
    [ $SECONDS -lt $deadline ] || fail "$1: waited 60 s for the end; status: $(ctl status 2>&1 | head -n 3)"
    sleep 0.1
  done
}

echo '{"dynamic_on": false}' >"$config"
"$bin/gradmonctl" run -n $ranks -- "$bin/gradmon-train" --config "$config" --steps 100000000 --step-ms 20 --threads 1 \
  --micro-batches 2 --experts 4 --layers 2 --width 32 >"$place/training.log" 2>&1 &
job=$!
until_status 'OFF'

collect 'Gradients before and after reduction' '"wg_distribution": true' grad_unreduced grad_reduced
collect 'Gradients of each micro batch' '"wg_distribution": true, "monitor_mbs_grad": true' grad_unreduced grad_reduced
collect 'Weights before and after the update' '"param_distribution": true' param_origin param_updated
collect 'Optimizer moments' '"mv_distribution": true' exp_avg exp_avg_sq
collect 'Gradient against momentum' '"mg_direction": true' other
collect 'Activations and their gradients' '"xy_distribution": true, "all_xy": true' actv actv_grad
collect 'Communication' '"cc_distribution": {"enable": true, "cc_pre_hook": true}' other
collect 'L2 features' '"recording_l2_features": true, "sa_order": "b,s,h,d", "l2_targets": {"attention_hook": ["blocks.0.attention.core"], "linear_hook": [],
  "moe_router_weight_hook": ["blocks.0.mixture.router"], "moe_router_logit_hook": ["blocks.0.mixture.router"]}' \
  attention_hook linear_hook moe_router_weight_hook moe_router_logit_hook
collect 'Training scalars' '"scalars": {"loss": ["log", "records"], "iteration-time": "records", "throughput": "records", "grad-norm": "records",
  "expert_load": "records"}' scalar
collect 'Everything at once, of one block' '"targets": {"blocks.1": {}}, "wg_distribution": true, "param_distribution": true,
  "mv_distribution": true, "xy_distribution": true, "mg_direction": true' grad_unreduced grad_reduced param_origin param_updated exp_avg exp_avg_sq actv actv_grad other

echo 'Stacks of the watched modules'
printf '{"dynamic_on": true, "collect_times": 1, "stack_info": true, "xy_distribution": true, "targets": {"blocks.0": {}}}\n' >"$config.new"
mv "$config.new" "$config"
until_finished 'Stacks'
stacks=$(find "$MONITOR_OUTPUT_DIR" -name stack_info.csv | sort)
[ "$(wc -l <<<"$stacks")" = $ranks ] || fail "not every rank has a stack_info.csv: $stacks"
sed -n '1,2s/^/   /p' "$(head -n 1 <<<"$stacks")"

echo 'What happened:'
ctl history | sed 's/^/   /'

echo 'The structure of the model, after which training ends by itself'
printf '{"dynamic_on": true, "collect_times": 1, "print_struct": true}\n' >"$config.new"
mv "$config.new" "$config"
wait "$job" || fail "training failed"
job=''
for ((rank = 0; rank < ranks; rank++)); do
  [ -s "$MONITOR_OUTPUT_DIR/module_struct/rank$rank/module_struct.json" ] || fail "no module_struct.json of rank $rank"
done
echo "   $MONITOR_OUTPUT_DIR/module_struct/rank0/module_struct.json: $(grep -c '"config"' "$MONITOR_OUTPUT_DIR/module_struct/rank0/module_struct.json") places"
echo "demo: passed"
