// SPDX-License-Identifier: Apache-2.0
// The records of TFRecord files: 8 bytes of length, 4 bytes of its checksum, the data, 4 bytes of the data's
// checksum, all little-endian. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "control/step.h"
#include "writers/queue/record.h"

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

struct TaggedNumber {
  std::array<std::string_view, 3> tag;  // its parts, UTF-8
  float number = 0;
};

// Appends one record with the numbers from `begin` to `end`, which TensorBoard draws as curves. `wall_time`
// is in seconds since 1970. Pure.
void append_scalar_event(std::string& out, std::int64_t step, double wall_time, const TaggedNumber* begin,
                         const TaggedNumber* end);

// A record that TensorBoard shows as a histogram. `tag` is UTF-8. `min` and `max` are the edges of the bins
// that have values: TensorBoard draws the outermost of these bins up to them. `sum` and `sum_squares` use the
// bins' centres, because the values themselves are not known. Pure.
std::string histogram_record(std::string_view tag, const BinCounts& counts, Step step, double wall_time);

// The first record of every event file.
std::string file_version_record(double wall_time);
inline constexpr std::string_view kEventWriter = "gradmon";  // in that record; older releases name none

// A record that TensorBoard shows as text. The text is Markdown in UTF-8.
std::string text_record(std::string_view tag, std::string_view text, Step step, double wall_time);

// The config of a revision as Markdown: a title, then the config's lines as a block of code.
std::string config_markdown(Revision revision, std::string_view config);

}  // namespace gradmon
