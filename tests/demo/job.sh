# SPDX-License-Identifier: Apache-2.0
# Shared by the demos; source it after setup.sh. Creates a temporary directory, ends the job
# at exit, and waits for the job's status and steps. Uses $bin; sets $place, $config and $job.

place=$(mktemp -d "${TMPDIR:-/tmp}/gradmon-demo-XXXXXX")
config=$place/monitor_config.json
export MONITOR_OUTPUT_DIR=$place/monitor_output XDG_RUNTIME_DIR=$place DYNAMIC_MONITOR=True GRADMON_LOG=info
unset GRADMON_ENDPOINT GRADMON_JOB

job=''
finish() {
  local code=$?
  trap - EXIT
  if [ -n "$job" ]; then
    kill -TERM "$job" 2>/dev/null
    wait "$job" 2>/dev/null
  fi
  if [ $code = 0 ]; then rm -rf "$place"; else say "the demo's files are in $place"; fi
  exit $code
}
trap finish EXIT
trap 'exit 130' INT TERM

fail() {
  say "$*"
  tail -n 20 "$place/training.log" >&2
  exit 1
}

ctl() { "$bin/gradmonctl" "$@"; }

# until_status TEXT: waits until the first line of `gradmonctl status` contains TEXT.
until_status() {
  local deadline=$((SECONDS + 120))
  until ctl status 2>/dev/null | head -n 1 | grep -q -- "$1"; do
    [ $SECONDS -lt $deadline ] || fail "waited 120 s for a status with \"$1\"; it is: $(ctl status 2>&1 | head -n 1)"
    sleep 0.2
  done
  echo "   gradmonctl status: $(ctl status | head -n 1)"
}

# until_step N: waits until the training has reached step N.
until_step() {
  local deadline=$((SECONDS + 300))
  until grep -q "step $1 loss" "$place/training.log"; do
    [ $SECONDS -lt $deadline ] || fail "waited 300 s for step $1"
    sleep 0.2
  done
}
