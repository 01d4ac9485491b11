// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace gradmon {

// Runs a bash script that launches a job, and returns the lines that it printed: one for
// each rank, in any order. `$PRINT` in the script is print-launch-id, `$HERE` a temporary
// directory. Fails the test if the script fails; ends the script after `seconds`.
std::vector<std::string> run_launch(const std::string& script, int seconds = 240);

// The line that every rank printed. Fails the test if the lines differ, are not `ranks`
// lines, or name no launch id.
std::string launch_id_of(const std::string& script, int ranks = 2);

}  // namespace gradmon
