// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/tensorboard/record_framing.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <limits>

namespace gradmon {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kHeaderBytes = kLengthBytes + 4;

std::uint32_t crc32c(std::string_view bytes) {
  constexpr std::size_t kMost = std::numeric_limits<int>::max();
  std::uint32_t crc = ~0U;
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, kMost);
    // crc32_iscsi() only reads the bytes.
    auto* const begin = reinterpret_cast<unsigned char*>(const_cast<char*>(part.data()));
    crc = crc32_iscsi(begin, static_cast<int>(part.size()), crc);
    bytes.remove_prefix(part.size());
  }
  return ~crc;
}

template <typename Integer>
void put_little_endian(char* to, Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i) to[i] = static_cast<char>(value >> (8 * i) & 0xff);
}

template <typename Integer>
Integer little_endian(const char* from) {
  Integer value = 0;
  for (std::size_t i = sizeof value; i > 0; --i)
    value = static_cast<Integer>(value << 8U | static_cast<unsigned char>(from[i - 1]));
  return value;
}

}  // namespace

std::optional<std::string_view> first_record(std::string_view bytes) {
  constexpr std::size_t kFooterBytes = 4;
  if (bytes.size() < kHeaderBytes + kFooterBytes) return std::nullopt;
  const auto length = little_endian<std::uint64_t>(bytes.data());
  if (length > bytes.size() - kHeaderBytes - kFooterBytes) return std::nullopt;
  const std::string_view data = bytes.substr(kHeaderBytes, length);
  const bool whole = little_endian<std::uint32_t>(bytes.data() + kLengthBytes) ==
                         masked_crc32c(bytes.substr(0, kLengthBytes)) &&
                     little_endian<std::uint32_t>(data.data() + data.size()) == masked_crc32c(data);
  return whole ? std::optional(data) : std::nullopt;
}

std::size_t size_of_record(std::string_view data) { return kHeaderBytes + data.size() + 4; }

std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

std::string record_of(std::string_view data) {
  std::string record;
  RecordFrame frame(record);
  frame.begin();
  record += data;
  frame.end();
  return record;
}

void RecordFrame::begin() {
  out_.append(kHeaderBytes, '\0');
  data_ = out_.size();
}

void RecordFrame::end() {
  char* const header = out_.data() + data_ - kHeaderBytes;
  put_little_endian(header, std::uint64_t{out_.size() - data_});
  put_little_endian(header + kLengthBytes, masked_crc32c({header, kLengthBytes}));
  char footer[4];
  put_little_endian(footer, masked_crc32c(std::string_view(out_).substr(data_)));
  out_.append(footer, sizeof footer);
}

}  // namespace gradmon
