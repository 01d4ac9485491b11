// SPDX-License-Identifier: Apache-2.0
// Reads event files, with a checksum of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "writers/sinks/event.pb.h"

namespace gradmon {

// CRC32C, one bit at a time.
std::uint32_t bitwise_crc32c(std::string_view bytes);

struct EventFileContent {
  std::vector<tensorboard::Event> events;
  std::size_t whole_bytes = 0;  // up to the end of the last whole record
};

// The whole records of the bytes. Throws std::runtime_error if one has a wrong checksum or is no event.
EventFileContent parse_events(std::string_view bytes);

// The event files of a directory, in the order of their names.
std::vector<std::filesystem::path> event_files_in(const std::filesystem::path& directory);

// A number that TensorBoard draws.
struct Point {
  std::string tag;
  std::int64_t step;
  float value;
};
bool operator==(const Point& a, const Point& b);  // NaN equals NaN
std::ostream& operator<<(std::ostream& out, const Point& point);

std::vector<Point> points_of(const EventFileContent& content);
// Of all event files, in order.
std::vector<Point> points_in(const std::filesystem::path& directory);

}  // namespace gradmon
