// SPDX-License-Identifier: Apache-2.0
// Appends records to TensorBoard's event files in one directory. One thread at a time. It keeps no file open
// between calls, so the next call notices a directory that was moved, removed or unmounted.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/files/descriptor.h"

namespace gradmon {

// Whole records, in rows: a row is kept or lost as a whole.
struct EventRows {
  std::string bytes;
  std::vector<std::size_t> ends;  // end of each row in `bytes`; the last one is bytes.size()
};

class EventFiles {
 public:
  static constexpr std::uint64_t kBytesOfAFile = 64U << 20U;

  // A new file begins when the current one would grow beyond `most_bytes`. A file has at least one row.
  explicit EventFiles(std::uint64_t most_bytes = kBytesOfAFile) : most_bytes_(most_bytes) {}

  struct Outcome {
    std::size_t rows_kept;  // the first rows
    std::string error;      // names the file; empty: all rows are kept
  };

  // Appends the rows to the current file in `directory`, or to a new file (0640; missing directories are
  // made,  0750; under the umask), which begins with the record `head`. A new file begins with the first
  // call, and if the current one is full, missing, in another directory, or changed since the last call. Its
  // name sorts after those of all event files in the directory. Cuts off a record that was written only in
  // part; if that fails, never continues the file.
  Outcome append(const std::filesystem::path& directory, const std::string& head, const EventRows& rows);

 private:
  tl::expected<Descriptor, std::string> open(const std::filesystem::path& directory, const std::string& head,
                                             std::size_t bytes);
  tl::expected<Descriptor, std::string> create(const std::filesystem::path& directory,
                                               const std::string& head);
  Outcome cut_off(int fd, std::size_t bytes_written, const EventRows& rows, int error);

  const std::uint64_t most_bytes_;

  // The current file after the last call. No path: none.
  std::filesystem::path path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::uint64_t size_ = 0;
  std::uint64_t head_size_ = 0;
};

// The event files in a directory, in the order in which they were begun; none without a directory. An error
// names the directory that cannot be read.
[[nodiscard]] tl::expected<std::vector<std::filesystem::path>, std::string> event_files_of(
    const std::filesystem::path& directory);

// True for a name as next_event_file() makes it. TensorBoard's own writer adds a number to it; only the host
// itself can distinguish a host name that ends in ".{number}".
bool is_named_as_ours(const std::string& file_name);

// The name of a new event file beside others: events.out.tfevents.{time}.{host}.{pid}. Sorts after all event
// files in the directory: `time` is in seconds since 1970, or the least later number that sorts so.
std::string next_event_file(const std::filesystem::path& directory, std::int64_t time);

}  // namespace gradmon
