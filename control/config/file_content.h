// SPDX-License-Identifier: Apache-2.0
// Reads a small regular file. Refuses pipes and devices, which could block. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "control/aliases.h"

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

struct ConfigError;
struct ParsedConfig;
using ConfigResult = tl::expected<ParsedConfig, std::vector<ConfigError>>;  // see config_parser.h

struct FileContent {
  std::string text;
  FileIdentity identity;
  std::shared_ptr<const ConfigResult> parsed = nullptr;  // set by ConfigFile only
};

// The result of stat(2): cheap to get, different after nearly every save.
struct FileSignature {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;

  // True for the same file with the same content; it may have been renamed since.
  bool same_save(const FileSignature& other) const {
    return device == other.device && inode == other.inode && size == other.size && mtime_ns == other.mtime_ns;
  }
  friend bool operator==(const FileSignature& a, const FileSignature& b) {
    return a.same_save(b) && a.ctime_ns == b.ctime_ns;
  }
};

struct FileRead {
  FileContent content;
  FileSignature signature;  // from before the content was read
};

// Both follow links. The error, for people, does not name the path: the file is missing, unreadable, not
// a regular file, or over 1 MiB.
[[nodiscard]] Result<FileSignature> sign_file(const fs::path& path);
[[nodiscard]] Result<FileRead> read_file(const fs::path& path);
// The same for an open file, from its start.
[[nodiscard]] Result<FileRead> read_open_file(int fd);

// 64 lower-case hex digits.
std::string sha256_hex(std::string_view text);

}  // namespace gradmon
