// SPDX-License-Identifier: Apache-2.0
// What comes over the network: a value or an error, and a value that was sent
// on comes back the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

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
  gradmon::fuzz::promise(again.has_value(), "what was taken can be sent on");
  gradmon::fuzz::promise(gradmon::encode(*again) == sent, "and comes back the same");
  return 0;
}
