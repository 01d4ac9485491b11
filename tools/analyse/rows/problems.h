// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gradmon {

// What was wrong with the input and left out: the first messages, and how many there were. One thread.
class Problems {
 public:
  static constexpr std::size_t kMessages = 10;

  // `line`: 0 for the whole file. `text` says what was found and expected.
  void add(const std::filesystem::path& file, std::uint64_t line, const std::string& text);

  // Adds those of another part of the input, which follow.
  void add(const Problems& others);

  std::uint64_t count() const { return count_; }
  // "FILE:LINE: TEXT" of the first problems; a last line counts the others. Not made printable.
  std::vector<std::string> messages() const;

 private:
  std::vector<std::string> first_;
  std::uint64_t count_ = 0;
};

}  // namespace gradmon
