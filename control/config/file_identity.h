// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace gradmon {

// Identifies one save of a file. Two saves of the same bytes differ in `mtime_ns`, so equality means "not
// saved since".
struct FileIdentity {
  std::int64_t mtime_ns = 0;  // nanoseconds since 1970; only ever compared for equality
  std::uint64_t size = 0;     // bytes
  std::string sha256;         // of the content, 64 lower-case hex digits

  friend bool operator==(const FileIdentity& a, const FileIdentity& b) {
    return a.mtime_ns == b.mtime_ns && a.size == b.size && a.sha256 == b.sha256;
  }
  friend bool operator!=(const FileIdentity& a, const FileIdentity& b) { return !(a == b); }
};

}  // namespace gradmon
