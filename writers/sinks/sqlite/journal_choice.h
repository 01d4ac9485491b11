// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

namespace gradmon {

// The way in which SQLite keeps a database consistent.
enum class JournalMode : std::uint8_t {
  wal,      // a write-ahead log: readers and the writer do not wait for each other
  rollback  // a rollback journal: needs no memory shared between processes
};

// The journal for a file system of that statfs() type. A write-ahead log needs memory that all processes
// share. Network file systems and FUSE do not promise such memory: they get a rollback journal.
JournalMode journal_for(std::uint32_t file_system_type);
// The same for the file system of a directory; if it is unknown, a rollback journal.
JournalMode journal_in(const std::filesystem::path& directory);

}  // namespace gradmon
