// SPDX-License-Identifier: Apache-2.0
// The alerts of a job on disk, $OUT/.gradmon/{epoch}/alerts.jsonl, from which a lead hub that starts again
// takes its list. One JSON object a line: the alert as gradmonctl prints it, and "process_id" of the rank's
// process. File I/O: on the lead hub's disk thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/alerts/alert_history.h"

namespace gradmon {

inline constexpr std::int64_t kMostAlertFileBytes = std::int64_t{4} << 20;  // 4,096 usual alerts take 2 MiB

// Appends whole lines, and creates missing parent directories. A file that would exceed `most_bytes` first
// becomes {path}.1, in the place of the previous one. After an error it removes what it has written, if
// possible.
tl::expected<void, std::string> append_alerts(const std::filesystem::path& path,
                                              const std::vector<AlertHistory::Kept>& alerts,
                                              std::int64_t most_bytes = kMostAlertFileBytes);

// The alerts of {path}.1 and then of the file. Skips lines that are no alert, such as one that a full disk
// has cut off. Skips a file that is not a regular file of this user or exceeds twice kMostAlertFileBytes.
std::vector<AlertHistory::Kept> read_alerts(const std::filesystem::path& path);

}  // namespace gradmon
