// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/isolation/footprint.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace gradmon {
namespace {

namespace fs = std::filesystem;

std::int64_t bytes_of(const fs::path& status, const std::string& key) {
  std::ifstream in(status);
  std::string word;
  std::int64_t kilobytes = 0;
  while (in >> word) {
    if (word == key && in >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

}  // namespace

Footprint footprint(pid_t pid) {
  const fs::path process = "/proc/" + std::to_string(pid);
  Footprint found;
  for (const auto& entry : fs::directory_iterator(process / "fd")) {
    std::error_code error;
    const std::string target = fs::read_symlink(entry.path(), error).string();
    if (error) continue;  // closed since
    const bool numbered = target.rfind("socket:", 0) == 0 || target.rfind("pipe:", 0) == 0;
    // Files have no name here: the names differ between processes.
    found.descriptors.push_back(numbered           ? target.substr(0, target.find(':'))
                                : target[0] == '/' ? "file"
                                                   : target);
  }
  std::sort(found.descriptors.begin(), found.descriptors.end());
  found.threads =
      static_cast<int>(std::distance(fs::directory_iterator(process / "task"), fs::directory_iterator()));
  found.address_space = bytes_of(process / "status", "VmSize:");
  found.memory = bytes_of(process / "status", "RssAnon:");
  return found;
}

std::vector<std::string> additional_descriptors(const Footprint& more, const Footprint& less) {
  std::vector<std::string> result;
  std::set_difference(more.descriptors.begin(), more.descriptors.end(), less.descriptors.begin(),
                      less.descriptors.end(), std::back_inserter(result));
  return result;
}

}  // namespace gradmon
