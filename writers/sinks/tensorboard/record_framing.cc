// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/tensorboard/record_framing.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <limits>

namespace gradmon {
namespace {

constexpr std::size_t kLengthBytes = 8;
static_assert(kRecordHeaderBytes == kLengthBytes + kRecordFooterBytes);

std::uint32_t crc32c(std::string_view bytes) {
  constexpr std::size_t kMost = std::numeric_limits<int>::max();
  std::uint32_t crc = ~0U;
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, kMost);
    // crc32_iscsi() does not change the bytes.
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
Integer little_endian(std::string_view bytes) {
  Integer value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i)
    value |= static_cast<Integer>(Integer{static_cast<unsigned char>(bytes[i])} << (8 * i));
  return value;
}

}  // namespace

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

std::optional<std::uint64_t> record_length(std::string_view header) {
  const std::string_view length = header.substr(0, kLengthBytes);
  if (!is_footer_of(length, header.substr(kLengthBytes))) return std::nullopt;
  return little_endian<std::uint64_t>(length);
}

bool is_footer_of(std::string_view data, std::string_view footer) {
  return masked_crc32c(data) == little_endian<std::uint32_t>(footer);
}

std::optional<std::string_view> first_record(std::string_view bytes) {
  if (bytes.size() < size_of_record("")) return std::nullopt;
  const auto length = record_length(bytes.substr(0, kRecordHeaderBytes));
  if (!length || *length > bytes.size() - size_of_record("")) return std::nullopt;
  const std::string_view data = bytes.substr(kRecordHeaderBytes, *length);
  if (!is_footer_of(data, bytes.substr(kRecordHeaderBytes + data.size(), kRecordFooterBytes)))
    return std::nullopt;
  return data;
}

std::size_t size_of_record(std::string_view data) {
  return kRecordHeaderBytes + data.size() + kRecordFooterBytes;
}

void RecordFrame::begin() {
  out_.append(kRecordHeaderBytes, '\0');
  data_ = out_.size();
}

void RecordFrame::end() {
  char* const header = out_.data() + data_ - kRecordHeaderBytes;
  put_little_endian(header, std::uint64_t{out_.size() - data_});
  put_little_endian(header + kLengthBytes, masked_crc32c({header, kLengthBytes}));
  char footer[kRecordFooterBytes];
  put_little_endian(footer, masked_crc32c(std::string_view(out_).substr(data_)));
  out_.append(footer, sizeof footer);
}

}  // namespace gradmon
