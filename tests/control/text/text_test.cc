// SPDX-License-Identifier: Apache-2.0
#include "control/text/words.h"

#include <cmath>
#include <limits>

#include "control/text/output_names.h"
#include "control/text/utf8.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

TEST_CASE("a number has so many digits, and NaN has no sign") {
  CHECK(number_text(24.4123, 3) == "24.4");
  CHECK(number_text(0.0861, 3) == "0.0861");
  CHECK(number_text(-std::numeric_limits<double>::infinity(), 3) == "-inf");
  CHECK(number_text(std::nan(""), 3) == "nan");
  CHECK(number_text(-std::nan(""), 6) == "nan");
}

TEST_CASE("a series is named as people name it") {
  CHECK(series_text("0:head.weight/rank0/post_grad", "norm") == "gradient norm of head.weight");
  CHECK(series_text("0:head.weight/rank0/acc_grad", "norm") == "unreduced gradient norm of head.weight");
  CHECK(series_text("0:head.weight:2/rank0/pre_grad", "max") ==
        "unreduced gradient max of head.weight in micro step 2");
  CHECK(series_text("0:fc1.output:0/rank12/actv", "mean") == "mean of fc1.output");
  CHECK(series_text("0:fc1.output:0/rank12/actv_grad", "norm") == "gradient norm of fc1.output");
  CHECK(series_text("1:w/rank3/param_origin", "norm") == "weight norm of 1:w");
  CHECK(series_text("0:w/rank3/exp_avg_sq", "norm") == "exp_avg_sq norm of w");
  CHECK(series_text("0:loss/rank0/scalar", "value") == "loss");
}

TEST_CASE("a tag of another form is its own name") {
  for (const char* tag : {"", "/", "//", "/rank0/actv", "no tag", "a/b", "evil\n"})
    CHECK(series_text(tag, "norm") == tag);
  CHECK(series_text(":3/rank0/actv", "norm") == "norm of :3");
}

TEST_CASE("the edit distance is exact up to its limit") {
  CHECK(edit_distance("layers", "layers", 3) == 0);
  CHECK(edit_distance("kitten", "sitting", 5) == 3);
  CHECK(edit_distance("kitten", "sitting", 2) == 3);
  CHECK(edit_distance("", "abc", 9) == 3);
  CHECK(edit_distance("a", "abcdefgh", 3) == 4);
}

TEST_CASE("the name of a rank's directory is read") {
  const auto name = parse_rank_directory("Nov24_12-04-37-rank13-1a2b3c4d");
  REQUIRE(name);
  CHECK(name->time == "Nov24_12-04-37");
  CHECK(name->rank == 13);
  CHECK(name->id == "1a2b3c4d");
  for (const char* other :
       {"", "Nov24_12-04-37-rank-1a2b3c4d", "Nov24_12-04-37-rank1", "Nov24_12-04-37-rank1-",
        "Foo24_12-04-37-rank1-1a", "Nov24_12-04-rank1-1a2b3c4d", "Nov00_12-04-37-rank1-1a",
        "Nov24_25-04-37-rank1-1a", "Nov24_12-04-37-rank99999999999-1a", "anomaly_detected"})
    CHECK(!parse_rank_directory(other));
}

TEST_CASE("the name of a rank's directory is read as it was written") {
  const std::string name = rank_directory_name("Nov24_12-04-37", 13, "1a2b3c4d");
  CHECK(name == "Nov24_12-04-37-rank13-1a2b3c4d");
  const auto read = parse_rank_directory(name);
  REQUIRE(read);
  CHECK(rank_directory_name(read->time, read->rank, read->id) == name);
  CHECK(is_run_id(read->id));
  for (const char* other : {"", "5e6f", "1a2b3c4d5", "1A2B3C4D", "1a2b3c4x"}) CHECK_FALSE(is_run_id(other));
}

TEST_CASE("the name of a kind's file is read") {
  const auto name = parse_kind_file("exp_avg_sq_100-199.r7.csv");
  REQUIRE(name);
  CHECK(name->kind == Kind::exp_avg_sq);
  CHECK(name->first_step == 100);
  CHECK(name->last_step == 199);
  CHECK(name->revision == 7);
  CHECK(parse_kind_file("actv_grad_0-0.csv")->kind == Kind::actv_grad);
  for (const char* other :
       {"", "stack_info.csv", ".actv_0-0.csv.new", "actv_0-0.csv.new", "actv_0.csv", "actv_2-1.csv",
        "actv_0-0.r.csv", "actv_0-99999999999999999999.csv", "actv_0-0.csv.gz"})
    CHECK(!parse_kind_file(other));
}

TEST_CASE("the id of a run is read from the name of its file") {
  CHECK(id_of_run_file("run-1a2b3c4d.json") == "1a2b3c4d");
  for (const char* other : {"", "run-.json", "run-1a2b3c4d", "run-1a2b3c4d.json.new", "arun-1a2b3c4d.json"})
    CHECK(id_of_run_file(other).empty());
}

TEST_CASE("a time stamp is what names of run directories begin with") {
  CHECK(seconds_in_year("Jan01_00-00-00") == 0);
  CHECK(seconds_in_year("Jan02_01-02-03") == 86'400 + 3'723);
  CHECK(*seconds_in_year("Dec01_00-00-00") - *seconds_in_year("Nov30_23-59-59") == 1);
  CHECK(*seconds_in_year("Mar01_00-00-00") - *seconds_in_year("Feb29_00-00-00") == 86'400);
  CHECK(*seconds_in_year("Dec31_23-59-59") == kSecondsInLeapYear - 1);
  for (const char* text :
       {"", "Dec03", "Dez03_21-34-40", "Dec32_21-34-40", "Dec00_21-34-40", "Dec03_24-34-40", "Dec03_21-34-4x",
        "Dec03 21-34-40", "Dec03_21-34-400", "Dec003_2-34-40", "dec03_21-34-40"})
    CHECK_FALSE(seconds_in_year(text));
}

TEST_CASE("the time stamp of a time is read as it was written") {
  const std::time_t time = 1'790'000'000;
  std::tm local{};
  localtime_r(&time, &local);
  const auto seconds = seconds_in_year(format_time_stamp(time));
  REQUIRE(seconds);
  CHECK(*seconds % 60 == local.tm_sec);
  CHECK(*seconds / 60 % 60 == local.tm_min);
  CHECK(*seconds / 3'600 % 24 == local.tm_hour);
}

// Encodes as RFC 3629, section 3, independently of the code under test. Encodes invalid code points, too.
std::string encoded(char32_t code) {
  const auto byte = [](char32_t value) { return static_cast<char>(static_cast<unsigned char>(value)); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xC0 | code >> 6), byte(0x80 | (code & 0x3F))};
  if (code < 0x10000)
    return {byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F))};
  return {byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 0x3F)), byte(0x80 | (code >> 6 & 0x3F)),
          byte(0x80 | (code & 0x3F))};
}

TEST_CASE("every code point is decoded and surrogates and values above U+10FFFF are malformed") {
  for (char32_t code = 0; code <= 0x110010; ++code) {
    const bool valid = (code < 0xD800 || code > 0xDFFF) && code <= 0x10FFFF;
    const std::string text = "x" + encoded(code) + "y";
    const Utf8Character found = utf8_character(text, 1);
    if (found.bytes != (valid ? text.size() - 2 : 0)) FAIL_CHECK(static_cast<std::uint32_t>(code));
    if (valid && found.code_point != code) FAIL_CHECK(static_cast<std::uint32_t>(code));
  }
}

TEST_CASE("overlong, cut off and stray bytes are malformed") {
  for (const std::string text : {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\xE2\x82",
                                 "\xC3", "\x80", "\xFF", "\xC3(", "\xE2\x82("}) {
    CHECK(utf8_character(text, 0).bytes == 0);
  }
}

TEST_CASE("a prefix cuts no character") {
  CHECK(utf8_prefix("abc", 3) == "abc");
  CHECK(utf8_prefix("abcd", 3) == "abc");
  CHECK(utf8_prefix("a\xC3\xA4", 2) == "a");
  CHECK(utf8_prefix("a\xC3\xA4", 3) == "a\xC3\xA4");
  const std::string four = encoded(0x1F600);
  for (std::size_t most = 1; most <= 4; ++most) CHECK(utf8_prefix("x" + four, most) == "x");
  CHECK(utf8_prefix("x" + four + "y", 5) == "x" + four);
  CHECK(utf8_prefix("\x80\x80\x80\x80\x80\x80", 5).size() == 5);
  CHECK(utf8_prefix(four, 0).empty());
  CHECK(utf8_prefix(four, 2).empty());
}

}  // namespace
}  // namespace gradmon
