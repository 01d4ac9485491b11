// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "tools/convert/input/rank_rows.h"
#include "writers/sinks/tensorboard/event_files.h"
#include "writers/sinks/tensorboard/tags.h"

namespace gradmon {

// Writes the rows of one kind and rank as event files into one directory. A value has the sink's tag
// (writers/FORMAT.md), in msprobe's form "vp{vpp_stage}:{name}[:micro{m}]/{op}", and the time of the last
// write to the CSV file. One thread.
class EventDirectory {
 public:
  EventDirectory(std::filesystem::path directory, Kind kind, TagForm form);

  // Writes all rows until the end, or until the rows are stopped. An error names the file.
  [[nodiscard]] tl::expected<void, std::string> write(RankRows& rows);

 private:
  void append(const RankRows& rows, const Row& row);
  void append_scalar(const Row& row, std::string_view name, double wall_time);
  std::string_view target_tag(const RankRows& rows);
  tl::expected<void, std::string> flush(double wall_time);

  const std::filesystem::path directory_;
  const Kind kind_;
  const TagForm form_;
  std::array<std::string, kFields> columns_;  // "actv_norm/", in msprobe's form "/norm"
  std::vector<std::string> targets_;          // "vp0:fc1.input", by number; empty: not needed so far
  std::vector<std::string> micro_steps_;      // ":micro3", of the small ones
  std::string large_micro_step_;
  EventFiles files_;
  EventRows part_;
};

}  // namespace gradmon
