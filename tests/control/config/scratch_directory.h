// SPDX-License-Identifier: Apache-2.0
// Config texts, the ways in which users save a file, and functions that wait for the next report of a
// ConfigFile.
#pragma once

#include <poll.h>

#include <fstream>
#include <set>

#include "control/config/config_file.h"
#include "control/config/json_text.h"
#include "tests/support/temporary_directory.h"

namespace gradmon::testing {

class ScratchDirectory : public TemporaryDirectory {
 public:
  using TemporaryDirectory::TemporaryDirectory;
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(path())) all.insert(entry.path().filename().string());
    return all;
  }
};

inline std::string text_of(int n) {
  return "{\n  \"n\": " + std::to_string(n) + ",\n  \"dynamic_on\": true\n}\n";
}
inline std::string with_off(const std::string& text) {
  return set_values(text, {{"dynamic_on", "false"}}).value_or("?");
}

inline FileContent content_of(const std::string& text) { return {text, {0, text.size(), sha256_hex(text)}}; }

// Throws if the file cannot be read.
inline FileRead read_now(const fs::path& path) { return read_file(path).value(); }

inline void save_in_place(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

inline void save_by_rename(const fs::path& path, std::string_view text) {
  const auto beside = path.parent_path() / ".user-save";
  save_in_place(beside, text);
  fs::rename(beside, path);
}

// Makes the last save an hour old, as at the start of a job: ConfigFile then reports the file at once.
inline void make_old(const fs::path& path) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
}

inline void save_old(const fs::path& path, std::string_view text) {
  save_in_place(path, text);
  make_old(path);
}

struct FakeClock {
  std::chrono::steady_clock::time_point now{std::chrono::hours(1)};
  ConfigFile::Clock clock() {
    return [this] { return now; };
  }
};

using Report = tl::expected<FileContent, std::string>;

inline std::optional<Report> wait_for_report(ConfigFile& file,
                                             std::chrono::milliseconds longest = std::chrono::seconds(20)) {
  const auto end = std::chrono::steady_clock::now() + longest;
  do {
    if (auto report = file.poll()) return report;
    pollfd waiting{file.event_fd(), POLLIN, 0};
    ::poll(&waiting, 1, static_cast<int>(file.next_poll().count()));
  } while (std::chrono::steady_clock::now() < end);
  return std::nullopt;
}

// The text of the next report, or "(problem) TEXT", or "(nothing)" if no report comes.
inline std::string next_text(ConfigFile& file) {
  const auto report = wait_for_report(file);
  if (!report) return "(nothing)";
  return *report ? report->value().text : "(problem) " + report->error();
}

}  // namespace gradmon::testing
