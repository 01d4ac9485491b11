// SPDX-License-Identifier: Apache-2.0
// Finds the rows in the event files of earlier jobs in a directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "writers/sinks/known_rows.h"
#include "writers/sinks/resumed_samples.h"

namespace gradmon {

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
