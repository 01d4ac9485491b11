// SPDX-License-Identifier: Apache-2.0
// The messages of AnomalyRankDivergence on the wire.
#include "control/alerts/replica_message.h"

#include "control/debian_version.h"
#include "control/wire/field_codec.h"
#include "control/wire/messages.h"
#include "control/wire/wire.pb.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

template <class T>
T round_trip(const T& message) {
  const auto frame = decode_frame(encode(Frame(Bundles{{"epoch", {{3, 7}}, message}})));
  REQUIRE(frame);
  return std::get<T>(std::get<Bundles>(*frame).at(0).message);
}

TEST_CASE("what ranks tell of their replicas is decoded with all its fields") {
  const ReplicaDigests digests{9, 2, {{Revision{4}, 5, 3, std::string(kReplicaDigestBytes, '\xff')}}};
  CHECK(encode_fields(round_trip(digests)) == encode_fields(digests));
  const ReplicaRequest request{Revision{4}, 5, 3, 63};
  CHECK(encode_fields(round_trip(request)) == encode_fields(request));
  ReplicaValues values{request, 9, 1e-6, {{1, "fc1", {{3, 0.0}, {4, -0.5}}}, {0, "fc2", {}}}};
  const ReplicaValues back = round_trip(values);
  CHECK(encode_fields(back) == encode_fields(values));
  REQUIRE(back.rows.size() == 2);
  CHECK(back.rows[0].values.size() == 2);
  CHECK(back.rows[0].values[0].value == 0);
  values.rows.resize(kMostReplicaRows, ReplicaRow{0, std::string(kMostReplicaName, 'n'), {{3, 0.5}}});
  CHECK(round_trip(values).rows.size() == kMostReplicaRows);
}

TEST_CASE("what ranks tell of their replicas is refused if it is out of range") {
  const auto refused = [](const Message& message) {
    return !decode_frame(encode(Frame(Bundles{{"epoch", {{3, 7}}, message}})));
  };
  CHECK(refused(ReplicaDigests{9, 1, {}}));
  CHECK(refused(ReplicaDigests{9, 2, {{Revision{4}, 5, 3, "short"}}}));
  CHECK(refused(ReplicaRequest{Revision{4}, 5, 3, 64}));
  CHECK(refused(ReplicaValues{{Revision{4}, 5, 99, 0}, 9, 1e-6, {}}));
  wire::Frame frame;
  wire::Bundle& bundle = *frame.mutable_bundles()->add_bundles();
  bundle.set_replica_digests("\xff\xff");
  CHECK_FALSE(decode_frame(frame.SerializeAsString()));
  bundle.set_replica_values("");
  CHECK_FALSE(decode_frame(frame.SerializeAsString()));
}

}  // namespace
}  // namespace gradmon
