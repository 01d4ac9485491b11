// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <tl/expected.hpp>

#include "control/files/descriptor.h"

namespace gradmon {

// A file or directory that appears under its name only when it is complete. Until then it is in a directory
// beside it, `.NAME.unfinished-XXXXXX`, which the destructor removes. The next begin() there removes the
// directory of a killed process. One thread.
class UnfinishedOutput {
 public:
  // The output that may exist at the target, besides an empty directory.
  enum class Earlier {
    nothing,
    file,   // replaced at once
    curves  // a directory; rank{R}/{prefix} in it are added or replaced one by one
  };

  // Makes missing parents of `target` (0750). The error: something else exists there.
  static tl::expected<UnfinishedOutput, std::string> begin(const std::filesystem::path& target,
                                                           Earlier earlier = Earlier::nothing);

  ~UnfinishedOutput() { remove(); }
  UnfinishedOutput(UnfinishedOutput&&) noexcept = default;
  UnfinishedOutput& operator=(UnfinishedOutput&&) = delete;

  const std::filesystem::path& target() const { return target_; }
  // The place to make the file or directory; it does not exist yet.
  std::filesystem::path path() const { return place_ / "result"; }

  // Renames it to the target, unless something new has that name since begin(). Call it once. After an error,
  // nothing has changed. Returns the number of replaced files or directories of an earlier output.
  [[nodiscard]] tl::expected<std::size_t, std::string> finish();

 private:
  // `earlier`: the existing output.
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
