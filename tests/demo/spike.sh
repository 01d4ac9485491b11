# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# tools/demo --spike, which sources it: a spike of a gradient in a step that the config does not name raises an alert,
# which collects the next steps in detail; the flight recorder has the steps before it. Later a gradient becomes NaN.
# Each fault has one line in a rank's log, and is in the list after the job has ended. Uses $bin.
ranks=4
build_preset release gradmonctl gradmon-train || exit 1
# shellcheck source=tests/demo/job.sh
source "$gradmon_root/tests/demo/job.sh"

kept=8   # steps of the flight recorder
richer=3 # steps collected in detail after the alert
layers=4
spike=$((RANDOM % 100 + 151))
nan=400
layer=blocks.$((RANDOM % layers)).contract.weight

# field OBJECT-PATH: prints a field of the JSON on standard input, such as .largest_change[0].step.
field() { /usr/bin/python3 -c 'import json, sys; print(eval("d" + sys.argv[1], {"d": json.load(sys.stdin)}))' "$1"; }

# steps_of FILE...: prints the distinct values of the column `step`, ascending, in one line.
steps_of() {
  awk -F, 'FNR == 1 { for (i = 1; i <= NF; i++) if ($i == "step") column = i; next } { print $column }' "$@" |
    sort -nu | paste -sd ' '
}

cat >"$config" <<END
{"dynamic_on": true, "collect_times": 1000000, "step_interval": 10, "keep_last": $kept,
 "wg_distribution": true, "ops": ["norm", "nans"],
 "scalars": {"loss": "records"},
 "alert": {"rules": [{"rule_name": "AnomalyNan"}, {"rule_name": "AnomalySpike", "args": {"threshold": 100}}]},
 "on_alert": {"collect": {"wg_distribution": true, "param_distribution": true, "xy_distribution": true,
                          "all_xy": true, "ops": ["norm", "min", "max", "mean", "nans", "zeros"]},
              "times": $richer, "cooldown": 3600}}
END

echo "1. Four ranks train. Every tenth step they collect the norms of the gradients:"
sed 's/^/   /' "$config"
"$bin/gradmonctl" run -n $ranks -- "$bin/gradmon-train" --config "$config" --steps 100000000 --step-ms 20 --threads 1 \
  --layers $layers --width 32 --max-norm 0 --spike-step $spike --nan-step $nan --spike-parameter $layer >"$place/training.log" 2>&1 &
job=$!
until_status 'ON'

echo "2. In a step between 151 and 250, the gradient of one layer is 1,000 times too large on rank 0."
until_step 350
ctl alerts --json >"$place/alerts.json" || fail "gradmonctl alerts failed"
alerts=$(field "['alerts'].__len__()" <"$place/alerts.json")
[ "$alerts" -gt 0 ] || fail "no alert was raised"
ctl alerts | sed 's/^/   /' | head -n 5
echo "   in the log of rank 0:"
line=$(grep -o "spike at step .*, rank 0: .*" "$place/training.log")
echo "   $line"
[ "$(grep -c "spike at step $spike, rank 0: .*gradient norm of $layer is" <<<"$line")" = 1 ] ||
  fail "expected one line of the spike at step $spike in $layer"

echo "3. The alert collected the next steps in detail, on all ranks, and then went back:"
ctl history | sed 's/^/   /'
captured=''
for directory in "$MONITOR_OUTPUT_DIR"/*-rank*-*/; do
  steps=$(steps_of "$directory"actv_[0-9]*.csv)
  [ "$(wc -w <<<"$steps")" = $richer ] || fail "$directory has activations of the steps '$steps', expected $richer steps"
  [ "${captured:=$steps}" = "$steps" ] || fail "$directory has the steps $steps, another rank $captured"
done
[ "${captured%% *}" -gt $spike ] || fail "the capture has the steps $captured, the spike was in step $spike"
echo "   activations, weights and gradients of the steps $captured, alike on $ranks ranks"

echo "4. The flight recorder has what led up to it:"
flight=$(steps_of "$MONITOR_OUTPUT_DIR"/*/flight/grad_reduced_*.csv)
[[ " $flight " == *" $((spike - 1)) $spike "* ]] || fail "the flight recorder has the steps '$flight', not those before $spike"
echo "   gradient norms of the steps $flight"

echo "5. gradmonctl analyse top --flight"
"$bin/gradmonctl" analyse top "$MONITOR_OUTPUT_DIR" --flight --count 3 | sed 's/^/   /'
"$bin/gradmonctl" analyse top "$MONITOR_OUTPUT_DIR" --flight --json >"$place/top.json" || fail "gradmonctl analyse failed"
found_layer=$(field "['largest_change'][0]['layer']" <"$place/top.json")
found_step=$(field "['largest_change'][0]['step']" <"$place/top.json")
[ "$found_layer" = "$layer" ] || fail "the spike was planted in $layer; found: $found_layer"
[ "$found_step" = "$spike" ] || fail "the spike was planted in step $spike; found: $found_step"
echo "   planted: step $spike, $layer. Found: step $found_step, $found_layer."

echo "6. In step $nan the gradient becomes NaN; then the job ends. gradmonctl alerts:"
until_step 450
kill -TERM "$job" && wait "$job"
job=''
ctl alerts >"$place/ended.txt" || fail "gradmonctl alerts failed after the end of the job"
sed 's/^/   /' "$place/ended.txt"
faults=$(awk 'NR == 2 || NR == 3 { print $1, $2 }' "$place/ended.txt" | paste -sd ,)
[ "$faults" = "$spike AnomalySpike,$nan AnomalyNan" ] || fail "the first two lines have '$faults'"
# One for each step in which more series become NaN, and one for the loss, which is reported after the step.
lines=$(grep -c "NaN at step [0-9]*, rank 0:" "$place/training.log")
[ "$lines" -le 4 ] || fail "the log of rank 0 has $lines lines of NaN"
echo "demo: passed"
