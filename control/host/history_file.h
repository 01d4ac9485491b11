// SPDX-License-Identifier: Apache-2.0
// A job's history on disk, which outlives the job. The lead hub appends the changed entries of its
// journal to $OUT/.gradmon/{epoch}/history.jsonl; older ones are in history.jsonl.1. Each rank appends its
// plan switches to switches.jsonl in its run directory, with older ones in switches.jsonl.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "control/agree/journal.h"
#include "control/alerts/alert_history.h"
#include "control/aliases.h"

namespace gradmon {

// A rank has put a revision in force at a step.
struct SwitchNote {
  std::string epoch;
  Rank rank;
  Revision revision;
  Step step;
  bool on = false;
  WallTime at = 0;
};

inline constexpr std::size_t kMostHistoryBytes = std::size_t{64} << 20U;
inline constexpr std::size_t kMostSwitchBytes = std::size_t{1} << 20U;

// Append whole lines and create missing parent directories. A file that would exceed `most_bytes` first
// becomes {file}.1 and replaces the previous one: the log and the first line of the new file say so. File
// I/O: on the lead hub's disk thread or a rank's writer thread.
Result<void> append_history(const fs::path& file, const std::map<Journal::Key, HistoryEntry>& entries,
                            std::size_t most_bytes = kMostHistoryBytes);
Result<void> append_switch(const fs::path& file, const SwitchNote& note,
                           std::size_t most_bytes = kMostSwitchBytes);

// The directory $OUT/.gradmon/{epoch} of the job that has last written into the output directory `run`. If
// `run` is a rank's directory in it, of the job that wrote that one. The error: no such directory exists.
Result<fs::path> job_register(const fs::path& run);

// Reads the history of the newest epoch in an output directory. Skips incomplete lines. The error: the
// directory holds no history.
Result<std::vector<HistoryEntry>> history_from_files(const fs::path& output_dir);

// The alerts of a job on disk, $OUT/.gradmon/{epoch}/alerts.jsonl. A restarted lead hub reads its list from
// there. One JSON object a line: the alert as gradmonctl prints it, and "process_id" of the rank's process.
// File I/O: in a hub on its disk thread.
inline constexpr std::int64_t kMostAlertFileBytes = std::int64_t{4} << 20;  // 4,096 usual alerts take 2 MiB

// Appends whole lines, and creates missing parent directories. A file that would exceed `most_bytes` first
// becomes {path}.1 and replaces the previous one; the new file repeats its first alert of each rule and step
// (AlertHistory). After an error, removes the appended bytes if possible.
Result<void> append_alerts(const fs::path& path, const std::vector<AlertHistory::Kept>& alerts,
                           std::int64_t most_bytes = kMostAlertFileBytes);

// The alerts of {path}.1 and of the file, by rising number, each once. Skips lines that are no alert, such as
// a line cut off by a full disk. Skips a file that is not a regular file of this user or exceeds twice
// kMostAlertFileBytes.
std::vector<AlertHistory::Kept> read_alerts(const fs::path& path);

// The alerts of a run (job_register()). The error: the run holds no job.
Result<std::vector<AlertHistory::Kept>> alerts_from_files(const fs::path& run);

}  // namespace gradmon
