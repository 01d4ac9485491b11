// SPDX-License-Identifier: Apache-2.0
// TensorBoard's event files in a directory: appends rows to them, and finds the rows of earlier jobs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "control/files/descriptor.h"
#include "writers/sinks/earlier_output.h"

namespace gradmon {

// Whole records, in rows: a row is kept or lost as a whole.
struct EventRows {
  std::string bytes;
  std::vector<std::size_t> ends;  // end of each row in `bytes`; the last one is bytes.size()
};

// One thread at a time. Keeps no file open between calls, so the next call notices a directory that was
// moved, removed or unmounted.
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
[[nodiscard]] tl::expected<std::vector<std::filesystem::path>, std::string> list_event_files(
    const std::filesystem::path& directory);

// True for a name as next_event_file() makes it. TensorBoard's own writer adds a number to it; only the host
// itself can distinguish a host name that ends in ".{number}".
bool is_named_as_ours(const std::string& file_name);

// The name of a new event file beside others: events.out.tfevents.{time}.{host}.{pid}. Sorts after all event
// files in the directory: `time` is in seconds since 1970, or the least later number that sorts so.
std::string next_event_file(const std::filesystem::path& directory, std::int64_t time);

// The events of an event file's bytes, and the number of bytes up to the end of the last whole record. The
// key of an event is its first tag. A scalar over samples, whose own step is a number of samples, belongs to
// the step of the previous scalar. Stops reading at a record with a wrong checksum. Pure.
struct KnownEvents {
  KnownRows rows;
  SamplesByStep samples;  // of scalars over samples
  std::int64_t greatest_step = -1;
  std::uint64_t whole_bytes = 0;
};
KnownEvents find_events(std::string_view bytes);

// Cuts off a part of a record at the end of the newest file. `from`: the first step that the caller will
// write. Reads the newest file first, and stops behind a file that has only earlier rows. Neither uses nor
// cuts another program's file: a file that names another writer, has another form of name, or more than 128
// MiB. An error names the file.
[[nodiscard]] tl::expected<std::vector<KnownRows>, std::string> find_events_in(
    const std::filesystem::path& directory, std::int64_t from);

// The numbers of samples in the files: of all steps from `from` on, and of one before it, if there is one in
// the newest 16 files. Changes no file. An error names the file.
[[nodiscard]] tl::expected<SamplesByStep, std::string> find_samples_in_events(
    const std::filesystem::path& directory, std::int64_t from);

// The first tag of an event; "" if it has none, or if it is a text.
std::string tag_of_event(std::string_view event);

}  // namespace gradmon
