// SPDX-License-Identifier: Apache-2.0
#include "tests/support/temporary_directory.h"

#include <poll.h>
#include <stdlib.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace gradmon {

TemporaryDirectory::TemporaryDirectory(const std::filesystem::path& parent) {
  std::string pattern = (parent / "gradmon-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void keep_jobs_in(const TemporaryDirectory& directory) {
  setenv("XDG_RUNTIME_DIR", directory.path().c_str(), 1);
}

void remove_whole(const std::filesystem::path& directory) {
  std::filesystem::path aside = directory;
  aside += ".removed";
  std::filesystem::rename(directory, aside);
  std::filesystem::remove_all(aside);
}

unsigned mode_of(const std::filesystem::path& path) {
  return static_cast<unsigned>(std::filesystem::symlink_status(path).permissions());
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  // By rename, as careful editors save.
  const std::filesystem::path beside = path.string() + ".new";
  std::ofstream(beside, std::ios::binary) << text;
  std::filesystem::rename(beside, path);
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds at_most) {
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return condition();
    ::poll(nullptr, 0, 2);
  }
  return true;
}

}  // namespace gradmon
