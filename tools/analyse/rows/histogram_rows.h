// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/files/descriptor.h"
#include "control/vocabulary.h"
#include "tools/analyse/rows/row.h"
#include "writers/queue/record.h"

namespace gradmon {

// The records of one event file of TensorBoard, to which a running job may be appending. Silently skips a
// torn last record. A record with a wrong checksum, or longer than kMaxRecordBytes, is a problem and ends the
// file. The longest record bounds the memory. One thread.
class EventFile {
 public:
  static constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{64} << 20;

  // Never waits for a FIFO. A file that cannot be opened is a problem, and has no records.
  EventFile(std::filesystem::path path, Problems& problems);
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Returns false at the end. `event` is the data of the record, valid until the next call.
  bool next(std::string_view& event);

 private:
  bool read(std::uint64_t bytes);
  bool give_up(const std::string& problem);

  const std::filesystem::path path_;
  Problems& problems_;
  Descriptor file_;
  std::uint64_t size_ = 0;    // of the file when it was opened
  std::uint64_t offset_ = 0;  // of the record being read
  std::string buffer_;
};

// The event files in `tensorboard/` of a rank's directory, in the order of writing.
std::vector<std::filesystem::path> event_files_of(const std::filesystem::path& rank_directory,
                                                  Problems& problems);

// A histogram as gradmon writes it for TensorBoard. A value.
struct HistogramRow {
  std::int64_t step = 0;
  std::int32_t vpp_stage = 0;
  std::string name;  // of the parameter
  int rank = 0;
  Kind kind = Kind::update;
  std::array<double, kBins> counts{};  // finite, at least 0
};

// Parses the data of one record of an event file. nullopt: not an event, or not a histogram of gradmon (their
// tags are `{kind}/[{vpp_stage}:]{name}`, in msprobe's form `{vpp_stage}:{name}/rank{R}/{kind}`). `rank`: the
// file's, which gradmon's form does not name. Pure.
std::optional<HistogramRow> histogram_row_of(std::string_view event, int rank = 0);

}  // namespace gradmon
