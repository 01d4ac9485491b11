// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/histogram_rows.h"

#include <sys/stat.h>

#include <cmath>
#include <random>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "writers/sinks/event.pb.h"
#include "writers/sinks/event_records.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

struct Reading {
  std::vector<std::string> records;
  std::vector<std::string> problems;
};

Reading read(const std::filesystem::path& path) {
  Problems problems;
  Reading reading;
  EventFile file(path, problems);
  for (std::string_view record; file.next(record);) reading.records.emplace_back(record);
  std::string_view record;
  CHECK_FALSE(file.next(record));
  reading.problems = problems.messages();
  return reading;
}

Reading read_bytes(const std::string& bytes) {
  const TemporaryDirectory scratch;
  write_text(scratch / "events", bytes);
  return read(scratch / "events");
}

using Texts = std::vector<std::string>;

TEST_CASE("the records of an event file are read in order and a torn last one is left out") {
  const std::string whole = record_of("one") + record_of("") + record_of("three");
  CHECK(read_bytes(whole).records == Texts{"one", "", "three"});
  for (std::size_t torn = 1; torn < record_of("three").size(); ++torn) {
    const Reading reading = read_bytes(whole.substr(0, whole.size() - torn));
    CHECK(reading.records == Texts{"one", ""});
    CHECK(reading.problems.empty());
  }
}

TEST_CASE("after a record with a wrong checksum the rest of the file is left out and reported") {
  const std::string first = record_of("one"), second = record_of("two");
  for (const std::size_t at : {std::size_t{0}, std::size_t{9}, std::size_t{13}, second.size() - 1}) {
    std::string bytes = first + second + record_of("three");
    bytes[first.size() + at] = static_cast<char>(bytes[first.size() + at] ^ 4);
    const Reading reading = read_bytes(bytes);
    CHECK(reading.records == Texts{"one"});
    REQUIRE(reading.problems.size() == 1);
    CHECK(reading.problems[0].find("byte 19: ") != std::string::npos);
    CHECK(reading.problems[0].find("; the rest of the file is left out") != std::string::npos);
  }
}

TEST_CASE("a huge length takes no memory") {
  std::string header(kRecordHeaderBytes, '\0');
  header[7] = '\x7f';
  const std::uint32_t checksum = masked_crc32c(std::string_view(header).substr(0, 8));
  for (std::size_t i = 0; i < 4; ++i) header[8 + i] = static_cast<char>(checksum >> (8 * i) & 0xff);
  const Reading reading = read_bytes(header + "rest");
  CHECK(reading.records.empty());
  REQUIRE(reading.problems.size() == 1);
  CHECK(reading.problems[0].find("a record of 9151314442816847872 bytes; expected at most 67108864") !=
        std::string::npos);
}

TEST_CASE("any bytes are records and at most one problem") {
  std::mt19937 random(9);
  const std::string good = record_of("one") + record_of(std::string(300, 'x')) + record_of("three");
  for (int i = 0; i < 300; ++i) {
    std::string bytes = good;
    for (int change = 0; change < 3; ++change) bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    const Reading reading = read_bytes(bytes);
    CHECK(reading.records.size() <= 3);
    CHECK(reading.problems.size() <= 1);
  }
}

TEST_CASE("what is no file is a problem and the files of a rank are in the order of their names") {
  const TemporaryDirectory rank;
  Problems none;
  CHECK(event_files_of(rank.path(), none).empty());
  CHECK(none.count() == 0);
  std::filesystem::create_directory(rank / "tensorboard");
  REQUIRE(::mkfifo((rank / "tensorboard/events.out.tfevents.2").c_str(), 0600) == 0);
  write_text(rank / "tensorboard/events.out.tfevents.1", record_of("x"));
  write_text(rank / "tensorboard/notes.txt", "");
  const auto files = event_files_of(rank.path(), none);
  REQUIRE(files.size() == 2);
  CHECK(read(files[0]).records == Texts{"x"});
  CHECK(read(files[1]).problems.at(0).find("not a regular file") != std::string::npos);
  CHECK(read(rank / "absent").problems.at(0).find("cannot open: ") != std::string::npos);
}

// The data of the record.
std::string event_of(const std::string& tag, const BinCounts& counts, std::int64_t step = 7) {
  const std::string record = histogram_record(tag, counts, Step{step}, 1.5);
  return record.substr(kRecordHeaderBytes, record.size() - kRecordHeaderBytes - kRecordFooterBytes);
}

template <typename Change>
std::string changed(Change change) {
  tensorboard::Event event;
  REQUIRE(event.ParseFromString(event_of("0:w/rank2/update", {})));
  change(*event.mutable_summary()->mutable_value(0)->mutable_histo());
  return event.SerializeAsString();
}

}  // namespace

TEST_CASE("a histogram that was written is read back") {
  BinCounts counts{};
  counts[0] = 3;
  counts[29] = std::uint64_t{1} << 40U;
  const auto row = histogram_row_of(event_of("3:layers/rank1/a.weight/rank12/ratio", counts));
  REQUIRE(row);
  CHECK(row->step == 7);
  CHECK(row->vpp_stage == 3);
  CHECK(row->name == "layers/rank1/a.weight");
  CHECK(row->rank == 12);
  CHECK(row->kind == Kind::ratio);
  CHECK(row->counts[0] == 3);
  CHECK(row->counts[1] == 0);
  CHECK(row->counts[29] == 0x1p40);
}

TEST_CASE("a histogram whose tag names no rank has that of its file") {
  const auto row = histogram_row_of(event_of("update/layers/rank1/a.weight", {}), 12);
  REQUIRE(row);
  CHECK((row->rank == 12 && row->kind == Kind::update && row->vpp_stage == 0));
  CHECK(row->name == "layers/rank1/a.weight");
  const auto later = histogram_row_of(event_of("ratio/3:a:b", {}), 1);
  REQUIRE(later);
  CHECK((later->vpp_stage == 3 && later->name == "a:b"));
}

TEST_CASE("events that are none of gradmon's histograms are no rows") {
  for (const char* tag : {"", "w", "0:w", "0:w/rank2", "0:w/rank2/", "0:w/rank2/norm", "0:w/rank/update",
                          "x:w/rank2/update", "0:w/rank-2/update", "0:w/rank99999999999/update",
                          "/rank2/update:0", "0:w/rank2/update2", "update", "update2/w"}) {
    CAPTURE(tag);
    CHECK_FALSE(histogram_row_of(event_of(tag, {})));
  }
  CHECK_FALSE(histogram_row_of(event_of("0:w/rank2/update", {}, -1)));
  CHECK_FALSE(histogram_row_of("not an event"));
  CHECK_FALSE(histogram_row_of(""));
  CHECK_FALSE(histogram_row_of(changed([](auto& histogram) { histogram.add_bucket(1); })));
  CHECK_FALSE(histogram_row_of(changed([](auto& histogram) { histogram.set_bucket(3, -1); })));
  CHECK_FALSE(histogram_row_of(changed([](auto& histogram) { histogram.set_bucket(3, std::nan("")); })));
  CHECK(histogram_row_of(changed([](auto& histogram) { histogram.set_bucket(3, 2); }))->counts[3] == 2);
}

TEST_CASE("any bytes are a row with bounded numbers or none") {
  std::mt19937 random(4);
  const std::string good = event_of("0:w/rank2/update", {});
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    for (int change = 0; change < 2; ++change) bytes[random() % bytes.size()] = static_cast<char>(random());
    const auto row = histogram_row_of(bytes);
    if (!row) continue;
    CHECK(row->step >= 0);
    CHECK(row->rank >= 0);
    for (const double count : row->counts) CHECK((std::isfinite(count) && count >= 0));
  }
}

}  // namespace gradmon
