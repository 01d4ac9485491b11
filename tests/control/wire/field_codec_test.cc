// SPDX-License-Identifier: Apache-2.0
#include "control/wire/field_codec.h"
#include "control/wire/messages.h"

#include "control/agree/journal.h"
#include "tests/control/wire/status.pb.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

Status full_status() {
  Status status;
  status.epoch = "epoch 1";
  status.mode = "static";
  status.reason = std::string("a\0b\xff", 4);
  status.revision = Revision{std::numeric_limits<std::uint64_t>::max()};
  status.effective_step = 0;
  status.pending = Pending{Revision{3}, "", -1};
  status.last_error = LastError{1'700'000'000'000, "disk full", 300};
  status.warnings = {"", "second", ""};
  status.hooks = {"grad_reduced"};
  RankStatus rank;
  rank.rank = Rank{-1};
  rank.pid = 4'194'304;
  rank.applied_step = -1;
  rank.step_ms = -0.0;
  rank.overhead = {Revision{7}, 8, 0.125, 16};
  rank.targets = {5, 2, 1};
  status.ranks = {rank, RankStatus{}};
  status.ranks[1].step_ms = 12.5;
  status.ranks[1].rank = Rank{128};
  status.started = std::numeric_limits<std::int64_t>::min();
  status.unlisted = AgreeingRanks{3, 4, {17}, {}, 250, 6};
  status.replicas_compared = ReplicasCompared{2, 8, -1, 300, 1, 0, {"rank 3: nothing so far", ""}};
  return status;
}

// A Status within a frame.
std::string encode_status(const Status& status) {
  const std::string frame = encode(Frame(status));
  std::string_view rest = frame;
  return std::string(field_codec::next_field(rest)->field.bytes);
}

std::optional<Status> decode_status(const std::string& bytes) {
  std::string bytes_of_frame;
  field_codec::put_bytes(4, bytes, bytes_of_frame);
  const auto frame = decode_frame(bytes_of_frame);
  return frame ? std::optional(std::get<Status>(*frame)) : std::nullopt;
}

}  // namespace

TEST_CASE("protoc reads the codec's bytes, and the codec reads the same from protoc's") {
  const std::string bytes = encode_status(full_status());
  oracle::Status read;
  REQUIRE(read.ParseFromString(bytes));
  CHECK(read.mode() == "static");
  CHECK(read.state() == "off");
  CHECK(read.reason() == std::string("a\0b\xff", 4));
  CHECK(read.revision() == std::numeric_limits<std::uint64_t>::max());
  CHECK(read.effective_step() == 0);
  REQUIRE(read.has_pending());
  CHECK(read.pending().since() == -1);
  REQUIRE(read.has_last_error());
  CHECK(read.last_error().text() == "disk full");
  REQUIRE(read.warnings_size() == 3);
  CHECK(read.warnings(1) == "second");
  REQUIRE(read.ranks_size() == 2);
  CHECK(read.ranks(0).rank() == -1);
  CHECK(read.ranks(0).overhead().share() == 0.125);
  CHECK(read.ranks(0).targets().unmatched() == 1);
  CHECK(read.ranks(1).step_ms() == 12.5);
  CHECK(read.started() == std::numeric_limits<std::int64_t>::min());
  CHECK((read.unlisted().counted() == 4 && read.unlisted().dropped(0) == 17));
  CHECK(read.replicas_compared().last_step() == -1);
  CHECK(read.replicas_compared().not_compared(0) == "rank 3: nothing so far");
  std::string again;
  REQUIRE(read.SerializeToString(&again));
  const auto returned = decode_status(again);
  REQUIRE(returned.has_value());
  CHECK(encode_status(*returned) == bytes);
}

TEST_CASE("the codec reads protoc's bytes and a missing field is zero") {
  oracle::Status written;
  written.set_mode("dynamic");
  written.set_collected(-5);
  written.mutable_pending();
  written.add_hooks("");
  written.add_ranks()->set_waited_ms(70);
  written.mutable_ranks(0)->mutable_overhead()->set_share(0.5);
  const auto read = decode_status(written.SerializeAsString());
  REQUIRE(read.has_value());
  CHECK(read->mode == "dynamic");
  CHECK(read->state.empty());
  CHECK(read->effective_step == 0);
  CHECK(read->collected == -5);
  REQUIRE(read->pending.has_value());
  CHECK(read->pending->reason.empty());
  CHECK_FALSE(read->last_error.has_value());
  CHECK(read->hooks == std::vector<std::string>{""});
  REQUIRE(read->ranks.size() == 1);
  CHECK(read->ranks[0].waited_ms == 70);
  CHECK(read->ranks[0].state.empty());
  CHECK(read->ranks[0].applied_step == 0);
  CHECK(read->ranks[0].overhead.share == 0.5);
}

TEST_CASE("an unknown field is skipped and a field of another wire type is ignored") {
  const std::string unknown(
      "\xf8\x07\x01\xfd\x07\x01\x02\x03\x04\xf9\x07\x01\x02\x03\x04\x05\x06\x07\x08\xfa\x07\x01z", 23);
  const auto read = decode_status(unknown + encode_status(full_status()));
  REQUIRE(read.has_value());
  CHECK(read->mode == "static");
  const auto typed = decode_status(std::string("\x08\x05\x12\x01x", 5));  // a number as the epoch
  REQUIRE(typed.has_value());
  CHECK(typed->epoch.empty());
  CHECK(typed->mode == "x");
}

TEST_CASE("truncated bytes are refused exactly where protoc refuses them") {
  const std::string bytes = encode_status(full_status());
  oracle::Status oracle;
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const std::string part = bytes.substr(0, size);
    INFO("the first " << size << " bytes of " << bytes.size());
    CHECK(decode_status(part).has_value() == oracle.ParseFromString(part));
  }
  CHECK_FALSE(decode_status(std::string("\x0b", 1)).has_value());  // the start of a group
  CHECK_FALSE(decode_status(std::string("\x00\x01", 2)).has_value());
}

}  // namespace gradmon
