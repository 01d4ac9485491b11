// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gradmon {

// The errors in skipped input: the first messages, and the number of all. One thread.
class Problems {
 public:
  static constexpr std::size_t kMessages = 10;

  // `line`: 0 for the whole file. `text`: the found and the expected value.
  void add(const std::filesystem::path& file, std::uint64_t line, const std::string& text);

  // Adds the problems of another part of the input, which follow.
  void add(const Problems& others);

  std::uint64_t count() const { return count_; }
  // "FILE:LINE: TEXT" of the first problems; a last line counts the others. Not made printable.
  std::vector<std::string> messages() const;

 private:
  std::vector<std::string> first_;
  std::uint64_t count_ = 0;
};

}  // namespace gradmon
