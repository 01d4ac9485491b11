// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "writers/alerts/alert_description.h"
#include "writers/queue/sink.h"

namespace gradmon {

// Bounds of one file. The events in a file are never removed.
struct AnomalyFileLimits {
  std::size_t events = 4096;
  std::size_t bytes = std::size_t{4} << 20;
};

struct Extended {
  std::size_t left_out = 0;          // events without room in the file
  std::filesystem::path kept_aside;  // new name of a file that was no dump; else empty
};

// "0:fc1.input:0/rank0/actv_step_2_call_7_norm"
std::string anomaly_key(const Alert& alert);

// True if brackets of a JSON text are nested deeper than `most`. nlohmann::json parses any depth, but copies
// and dumps a value recursively: a deep value ends the process. For a text that is not JSON, true at least
// where a parser would go deeper before it finds the error. Pure.
bool is_nested_deeper(std::string_view json, int most);

// Adds the events to `file`, which appears and changes by rename. Skips an event that the file already has; a
// different event with the same key gets "#2", "#3", … after its key. A file that is not a JSON object is
// renamed to `{file}.broken`, `{file}.broken-2`, …. An error names the file, and means that the file is
// unchanged.
[[nodiscard]] tl::expected<Extended, std::string> extend_anomaly_file(const std::filesystem::path& file,
                                                                      const std::vector<Alert>& alerts,
                                                                      const std::vector<int>& group_mates,
                                                                      const AnomalyFileLimits& limits = {});

// Writes the alerts of this rank to anomaly.json. Writer thread.
class AnomalyDump : public std::enable_shared_from_this<AnomalyDump> {
 public:
  using Directory = std::function<tl::expected<std::filesystem::path, std::string>()>;

  // `directory` returns the directory of the file, made if missing. Called for every write. `group_mates`:
  // see AlertOrigin.
  AnomalyDump(Directory directory, std::vector<int> group_mates, const AnomalyFileLimits& limits = {})
      : directory_(std::move(directory)), group_mates_(std::move(group_mates)), limits_(limits) {}

  // Takes events to write. Returns the write to do, or nullopt if an earlier write is still pending: it then
  // includes these events. At most `limits.events` wait, for a full disk; later events are dropped.
  std::optional<FileToWrite> add(const std::vector<Alert>& events);

  // Events dropped so far: the file, or the list of waiting events, was full.
  std::size_t given_up() const { return given_up_; }

 private:
  tl::expected<void, std::string> write();
  void give_up(std::size_t events, const std::string& why);

  const Directory directory_;
  const std::vector<int> group_mates_;
  const AnomalyFileLimits limits_;
  std::vector<Alert> waiting_;
  std::weak_ptr<void> write_;  // alive while the writer thread has the write
  std::size_t given_up_ = 0;
  bool given_up_logged_ = false;
};

}  // namespace gradmon
