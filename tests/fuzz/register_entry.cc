// SPDX-License-Identifier: Apache-2.0
// An entry of the register: a verdict or an error, and a verdict is written as
// it was read.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "control/net/messages.h"
#include "tests/fuzz/promise.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto verdict = gradmon::decode_verdict({reinterpret_cast<const char*>(data), size});
  if (!verdict) {
    gradmon::fuzz::promise(!verdict.error().empty(), "a refusal says why");
    return 0;
  }
  const std::string written = gradmon::encode(*verdict);
  const auto again = gradmon::decode_verdict(written);
  gradmon::fuzz::promise(again.has_value() && gradmon::encode(*again) == written,
                         "a verdict is written as it was read");
  gradmon::fuzz::promise(again->commit() == (again->plan != nullptr), "a commit has its plan");
  return 0;
}
