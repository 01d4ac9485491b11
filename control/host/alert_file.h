// SPDX-License-Identifier: Apache-2.0
// The alerts of a job on disk, $OUT/.gradmon/{epoch}/alerts.jsonl. A restarted lead hub reads its list from
// there. One JSON object a line: the alert as gradmonctl prints it, and "process_id" of the rank's process.
// File I/O: in a hub on its disk thread.
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
// becomes {path}.1 and replaces the previous one; the new file repeats its first alert of each rule and step
// (AlertHistory). After an error, removes the appended bytes if possible.
tl::expected<void, std::string> append_alerts(const std::filesystem::path& path,
                                              const std::vector<AlertHistory::Kept>& alerts,
                                              std::int64_t most_bytes = kMostAlertFileBytes);

// The alerts of {path}.1 and of the file, by rising number, each once. Skips lines that are no alert, such as
// a line cut off by a full disk. Skips a file that is not a regular file of this user or exceeds twice
// kMostAlertFileBytes.
std::vector<AlertHistory::Kept> read_alerts(const std::filesystem::path& path);

// The alerts of a run (job_register()). The error: the run holds no job.
tl::expected<std::vector<AlertHistory::Kept>, std::string> alerts_from_files(
    const std::filesystem::path& run);

}  // namespace gradmon
