# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# tools/demo --spike, which sources it: a loss spike at a step that the config does not know is caught by an
# alert, collected in detail, and found afterwards. Uses $bin.
ranks=4
build_preset release gradmonctl gradmon-train || exit 1
# shellcheck source=tools/demo_job.sh
source "$gradmon_root/tools/demo_job.sh"

kept=8     # steps of the flight recorder
richer=3   # steps that are collected in detail after the alert
block=$((RANDOM % 4))
spike=$((RANDOM % 100 + 150))
layer=blocks.$block.contract.weight

cat >"$config" <<END
{"dynamic_on": true, "step_interval": 10, "keep_last": $kept,
 "wg_distribution": true, "ops": ["norm", "nans"],
 "alert": {"rules": [{"rule_name": "AnomalySpike", "args": {"threshold": 50}}]},
 "on_alert": {"collect": {"wg_distribution": true, "param_distribution": true, "mv_distribution": true,
                          "xy_distribution": true, "all_xy": true, "ops": ["norm", "min", "max", "mean", "nans", "zeros"]},
              "times": $richer, "cooldown": 3600}}
END
echo "1. Four ranks train. The config collects the norms of the gradients in every 10th step:"
sed 's/^/   /' "$config"
"$bin/gradmonctl" run -n $ranks -- "$bin/gradmon-train" --config "$config" --steps 100000000 --step-ms 20 --threads 1 \
  --layers 4 --width 32 --max-norm 0 --spike-step $spike --spike-block $block >"$place/training.log" 2>&1 &
job=$!
until_status 'ON'
