// SPDX-License-Identifier: Apache-2.0
#include "tests/writers/sinks/event_reader.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <stdexcept>

#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i > 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
  return value;
}

bool has_checksum(std::string_view bytes, std::string_view checksum) {
  const std::uint32_t crc = bitwise_crc32c(bytes);
  return little_endian(checksum) == static_cast<std::uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8U);
}

}  // namespace

std::uint32_t bitwise_crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
  }
  return ~crc;
}

EventFileContent parse_events(std::string_view bytes) {
  EventFileContent content;
  while (bytes.size() - content.whole_bytes >= 12) {
    const std::string_view rest = bytes.substr(content.whole_bytes);
    if (!has_checksum(rest.substr(0, 8), rest.substr(8, 4)))
      throw std::runtime_error("wrong length checksum");
    const std::uint64_t length = little_endian(rest.substr(0, 8));
    if (length + 16 > rest.size()) break;
    const std::string_view data = rest.substr(12, length);
    if (!has_checksum(data, rest.substr(12 + length, 4))) throw std::runtime_error("wrong data checksum");
    tensorboard::Event event;
    if (!event.ParseFromArray(data.data(), static_cast<int>(length))) throw std::runtime_error("no event");
    content.events.push_back(std::move(event));
    content.whole_bytes += 16 + length;
  }
  return content;
}

std::vector<std::filesystem::path> event_files_in(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory, none))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

bool operator==(const Point& a, const Point& b) {
  const bool same = a.value == b.value || (std::isnan(a.value) && std::isnan(b.value));
  return same && a.tag == b.tag && a.step == b.step;
}

std::ostream& operator<<(std::ostream& out, const Point& point) {
  return out << point.tag << " @" << point.step << " = " << point.value;
}

std::vector<Point> points_of(const EventFileContent& content) {
  std::vector<Point> points;
  for (const tensorboard::Event& event : content.events) {
    for (const auto& value : event.summary().value()) {
      if (value.has_simple_value()) points.push_back({value.tag(), event.step(), value.simple_value()});
    }
  }
  return points;
}

std::vector<Point> points_in(const std::filesystem::path& directory) {
  std::vector<Point> points;
  for (const auto& file : event_files_in(directory)) {
    const auto more = points_of(parse_events(read_text(file)));
    points.insert(points.end(), more.begin(), more.end());
  }
  return points;
}

}  // namespace gradmon
