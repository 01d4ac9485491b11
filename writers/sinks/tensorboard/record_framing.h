// SPDX-License-Identifier: Apache-2.0
// The records of TFRecord files: 8 bytes of length, 4 bytes of its checksum, the data, 4 bytes of the data's
// checksum, all little-endian. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradmon {

// CRC32C (Castagnoli) of the bytes, rotated right by 15 bits, plus 0xa282ead8.
std::uint32_t masked_crc32c(std::string_view bytes);

// One whole record.
std::string record_of(std::string_view data);

// The sizes of a record's header and footer, around the data.
inline constexpr std::size_t kRecordHeaderBytes = 12;
inline constexpr std::size_t kRecordFooterBytes = 4;

// The number of bytes of data that a header of kRecordHeaderBytes announces; nullopt: its checksum is wrong.
std::optional<std::uint64_t> record_length(std::string_view header);
// True if a footer of kRecordFooterBytes has the checksum of the data.
bool is_footer_of(std::string_view data, std::string_view footer);
// The data of the first record in the bytes. nullopt if the record is incomplete, or a checksum is wrong.
std::optional<std::string_view> first_record(std::string_view bytes);
// The size of the record with that data, in bytes.
std::size_t size_of_record(std::string_view data);

// Appends records to a text in place: begin(), then append the data, then end().
class RecordFrame {
 public:
  explicit RecordFrame(std::string& out) : out_(out) {}
  void begin();
  void end();

 private:
  std::string& out_;
  std::size_t data_ = 0;  // offset of the first byte of the data
};

}  // namespace gradmon
