// SPDX-License-Identifier: Apache-2.0
// Any bytes from the network decode to a frame or to an error. A frame does not change when it is encoded
// and decoded again.
#include <cstddef>
#include <cstdint>

#include "control/wire/messages.h"
#include "tests/fuzz/promise.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto frame = gradmon::decode_frame({reinterpret_cast<const char*>(data), size});
  if (!frame) {
    gradmon::fuzz::promise(!frame.error().empty(), "a refusal says why");
    return 0;
  }
  const std::string sent = gradmon::encode(*frame);
  const auto again = gradmon::decode_frame(sent);
  gradmon::fuzz::promise(again.has_value(), "an encoded frame can be decoded");
  gradmon::fuzz::promise(gradmon::encode(*again) == sent, "a frame encodes to the same bytes");
  return 0;
}
