// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

namespace gradmon {

namespace fs = std::filesystem;

// A new temporary directory. The destructor removes it with all its files.
class TemporaryDirectory {
 public:
  TemporaryDirectory() : TemporaryDirectory(std::filesystem::temp_directory_path()) {}
  explicit TemporaryDirectory(const std::filesystem::path& parent);
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Sets XDG_RUNTIME_DIR of this process: the jobs that it creates have their directories
// there, not among the user's own jobs. Call it before other threads run.
void keep_jobs_in(const TemporaryDirectory& directory);

// Although another process makes files in it meanwhile.
void remove_whole(const std::filesystem::path& directory);

// The permission bits of a file. Does not follow a symbolic link.
unsigned mode_of(const std::filesystem::path& path);

// Empty if the file cannot be read.
std::string read_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, const std::string& text);

// Checks the condition every 2 ms until it is true; false if it stays false for `at_most`.
bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds at_most = std::chrono::seconds(60));

}  // namespace gradmon
