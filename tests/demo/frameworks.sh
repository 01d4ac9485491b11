# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# tools/demo --frameworks, which sources it: one small GPT under every framework, its config edited in mid-run, in the
# environments of tools/test --frameworks. Uses $bin.
ensure_frameworks frameworks-venv engines-venv || exit 1
build_preset release gradmonctl gradmon-hub gradmon_python || exit 1
# shellcheck source=tests/demo/job.sh
source "$gradmon_root/tests/demo/job.sh"
export GRADMON_LOG=warn GRADMON_BIN=$bin
unset DYNAMIC_MONITOR MONITOR_OUTPUT_DIR
# tests/python/frameworks: what lets Megatron's classes run on a CPU.
export PYTHONPATH=$gradmon_root/build/$(build_tree release)/python:$gradmon_root/tests/python/frameworks:$gradmon_root/tests/python/support
"$gradmon_python" -B "$gradmon_root/tests/demo/frameworks/demo.py" "$gradmon_root/build" "$place/jobs" "$@" &
job=$!
wait "$job"
code=$?
job=''
[ $code = 0 ] || exit $code
echo "demo: passed"
