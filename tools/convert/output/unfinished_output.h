// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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
  // What may be at the target already, besides an empty directory.
  enum class Earlier {
    nothing,
    file,   // is replaced at once
    curves  // a directory; rank{R}/{prefix} in it are added or replaced one by one (move_curve_directories)
  };

  // Missing parents of `target` are made (0750). An error if something else is there.
  static tl::expected<UnfinishedOutput, std::string> begin(const std::filesystem::path& target,
                                                           Earlier earlier = Earlier::nothing);

  ~UnfinishedOutput() { remove(); }
  UnfinishedOutput(UnfinishedOutput&&) noexcept = default;
  UnfinishedOutput& operator=(UnfinishedOutput&&) = delete;

  const std::filesystem::path& target() const { return target_; }
  // Where to make the file or directory; nothing is there yet.
  std::filesystem::path path() const { return place_ / "result"; }

  // Gives it its name, if nothing else than at begin() has that name by now. Call it once. After an error all
  // is as before. Returns how many files or directories of an earlier output were replaced.
  [[nodiscard]] tl::expected<std::size_t, std::string> finish();

 private:
  // `earlier`: what is there.
  UnfinishedOutput(std::filesystem::path target, Earlier earlier, std::filesystem::path place,
                   Descriptor lock)
      : target_(std::move(target)), earlier_(earlier), place_(std::move(place)), lock_(std::move(lock)) {}
  void remove();

  std::filesystem::path target_;
  Earlier earlier_;
  std::filesystem::path place_;  // the directory beside it
  Descriptor lock_;              // locked while this process lives; not valid after a move
};

}  // namespace gradmon
