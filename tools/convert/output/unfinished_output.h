// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

#include "control/files/descriptor.h"

namespace gradmon {

// A file or directory that appears under its name only when it is complete. Until then it is made in a
// directory beside it, `.NAME.unfinished-XXXXXX`, which the destructor removes. The next begin() there
// removes one that a killed process has left. One thread.
class UnfinishedOutput {
 public:
  // Missing parents of `target` are made (0750). An error if the target exists already, unless it is an empty
  // directory.
  static tl::expected<UnfinishedOutput, std::string> begin(const std::filesystem::path& target);

  ~UnfinishedOutput() { remove(); }
  UnfinishedOutput(UnfinishedOutput&&) noexcept = default;
  UnfinishedOutput& operator=(UnfinishedOutput&&) = delete;

  const std::filesystem::path& target() const { return target_; }
  // Where to make the file or directory; nothing is there yet.
  std::filesystem::path path() const { return place_ / "result"; }

  // Gives it its name, if nothing else has that name by now. Call it once.
  [[nodiscard]] tl::expected<void, std::string> finish();

 private:
  UnfinishedOutput(std::filesystem::path target, std::filesystem::path place, Descriptor lock)
      : target_(std::move(target)), place_(std::move(place)), lock_(std::move(lock)) {}
  void remove();

  std::filesystem::path target_;
  std::filesystem::path place_;  // the directory beside it
  Descriptor lock_;              // locked while this process lives; not valid after a move
};

}  // namespace gradmon
