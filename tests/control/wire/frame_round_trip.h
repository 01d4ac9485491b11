// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <variant>

#include "control/debian_version.h"
#include "control/wire/messages.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {

// The value after it was encoded as a frame and decoded.
template <class T>
T frame_round_trip(const T& value) {
  const auto frame = decode_frame(encode(Frame(value)));
  REQUIRE(frame);
  return std::get<T>(*frame);
}

}  // namespace gradmon
