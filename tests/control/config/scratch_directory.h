// SPDX-License-Identifier: Apache-2.0
// A directory of a test's own, the ways in which people save a file in it, and
// a loop that waits for what ConfigFile says.
#pragma once

#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

#include "control/config/config_file.h"

namespace gradmon::testing {

namespace fs = std::filesystem;

class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = (fs::temp_directory_path() / "gradmon-config-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = name;
  }
  ~ScratchDirectory() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  fs::path operator/(std::string_view name) const { return path_ / name; }
  const fs::path& path() const { return path_; }
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(path_)) all.insert(entry.path().filename().string());
    return all;
  }

 private:
  fs::path path_;
};

inline std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void save_in_place(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

inline void save_by_rename(const fs::path& path, std::string_view text) {
  const auto beside = path.parent_path() / ".user-save";
  save_in_place(beside, text);
  fs::rename(beside, path);
}

inline bool full_scale() {
  const char* const scale = std::getenv("GRADMON_TEST_SCALE");
  return scale != nullptr && std::string_view(scale) == "full";
}

// A save of long ago: what a file is at the start of a job.
inline void make_old(const fs::path& path) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
}

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

// The text of the next report; what else came, in words.
inline std::string next_text(ConfigFile& file) {
  const auto report = wait_for_report(file);
  if (!report) return "(nothing)";
  return *report ? report->value().text : "(problem) " + report->error();
}

}  // namespace gradmon::testing
