// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/histogram_row.h"

#include <cmath>
#include <random>

#include "control/debian_version.h"
#include "writers/sinks/tensorboard/event.pb.h"
#include "writers/sinks/tensorboard/histogram_event.h"
#include "writers/sinks/tensorboard/record_framing.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

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
