// SPDX-License-Identifier: Apache-2.0
// A job's history on disk, so that it survives the job: rank 0 appends the
// changes of its journal to $OUT/.gradmon/{epoch}/history.jsonl, each rank its
// own switches to switches.jsonl in its run directory.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/agree/journal.h"

namespace gradmon {

struct SwitchNote {
  std::string epoch;
  Rank rank;
  Revision revision;
  Step step;
  bool on = false;
  WallTime at = 0;
};

// Appends whole lines; the disk thread. A run directory is made where it is missing.
tl::expected<void, std::string> append_history(const std::filesystem::path& file,
                                               const std::map<Journal::Key, HistoryEntry>& entries);
tl::expected<void, std::string> append_switch(const std::filesystem::path& file, const SwitchNote& note);

// The history of the newest epoch found in an output directory, as its files
// tell it. Lines that are not whole are skipped. The error: there is none.
tl::expected<std::vector<HistoryEntry>, std::string> history_from_files(
    const std::filesystem::path& output_dir);

}  // namespace gradmon
