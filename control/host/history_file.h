// SPDX-License-Identifier: Apache-2.0
// A job's history on disk, which outlives the job. The lead hub appends the changed entries of its
// journal to $OUT/.gradmon/{epoch}/history.jsonl; older ones are in history.jsonl.1. Each rank appends its
// plan switches to switches.jsonl in its run directory, with older ones in switches.jsonl.1.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/agree/journal.h"

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
tl::expected<void, std::string> append_history(const std::filesystem::path& file,
                                               const std::map<Journal::Key, HistoryEntry>& entries,
                                               std::size_t most_bytes = kMostHistoryBytes);
tl::expected<void, std::string> append_switch(const std::filesystem::path& file, const SwitchNote& note,
                                              std::size_t most_bytes = kMostSwitchBytes);

// The directory $OUT/.gradmon/{epoch} of the job that has last written into the output directory `run`. If
// `run` is a rank's directory in it, of the job that wrote that one. The error: no such directory exists.
tl::expected<std::filesystem::path, std::string> job_register(const std::filesystem::path& run);

// Reads the history of the newest epoch in an output directory. Skips incomplete lines. The error: the
// directory holds no history.
tl::expected<std::vector<HistoryEntry>, std::string> history_from_files(
    const std::filesystem::path& output_dir);

}  // namespace gradmon
