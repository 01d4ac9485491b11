// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/tensorboard/record_framing.h"

#include <numeric>

#include "control/debian_version.h"
#include "tests/writers/sinks/tensorboard/event_reader.h"
#include "tests/writers/sinks/tensorboard/hex.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

namespace {

std::uint32_t unmasked(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xa282ead8U;
  return rotated >> 17 | rotated << 15;
}

}  // namespace

TEST_CASE("checksums are those of RFC 3720") {
  CHECK(unmasked(masked_crc32c(std::string(32, '\0'))) == 0x8a9136aaU);
  CHECK(unmasked(masked_crc32c(std::string(32, '\xff'))) == 0x62a8ab43U);
  std::string ascending(32, '\0');
  std::iota(ascending.begin(), ascending.end(), '\0');
  CHECK(unmasked(masked_crc32c(ascending)) == 0x46dd794eU);
  CHECK(unmasked(masked_crc32c(std::string(ascending.rbegin(), ascending.rend()))) == 0x113fdb5cU);
  CHECK(unmasked(masked_crc32c("123456789")) == 0xe3069283U);
}

TEST_CASE("checksums of any length are those of a computation bit by bit") {
  std::string bytes;
  for (unsigned i = 0; i < 3000; ++i) bytes += static_cast<char>(i * 2654435761U >> 24);
  for (std::size_t length = 0; length < bytes.size(); length += 1 + length / 7) {
    const std::string_view part = std::string_view(bytes).substr(0, length);
    CAPTURE(length);
    CHECK(unmasked(masked_crc32c(part)) == bitwise_crc32c(part));
  }
}

TEST_CASE("records are framed as by TensorBoard's own writer") {
  CHECK(hex(record_of("")) == "000000000000000029039807d8ea82a2");
  CHECK(hex(record_of("abc")) == "0300000000000000b099490e6162636e57f121");
}

TEST_CASE("records follow each other in one text") {
  std::string out = "before";
  RecordFrame frame(out);
  for (int i = 0; i < 2; ++i) {
    frame.begin();
    out += "abc";
    frame.end();
  }
  CHECK(out == "before" + record_of("abc") + record_of("abc"));
}

TEST_CASE("the header and the footer of a record are read back and a changed bit is seen") {
  const std::string record = record_of("abc");
  std::string header = record.substr(0, kRecordHeaderBytes), footer = record.substr(kRecordHeaderBytes + 3);
  REQUIRE(footer.size() == kRecordFooterBytes);
  CHECK(record_length(header) == 3);
  CHECK(record_length(record_of(std::string(70000, 'x')).substr(0, kRecordHeaderBytes)) == 70000);
  CHECK(is_footer_of("abc", footer));
  CHECK_FALSE(is_footer_of("abd", footer));
  header[0] = '\x02';
  footer[3] = static_cast<char>(footer[3] ^ 1);
  CHECK_FALSE(record_length(header));
  CHECK_FALSE(is_footer_of("abc", footer));
}
