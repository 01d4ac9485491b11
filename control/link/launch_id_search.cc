// SPDX-License-Identifier: Apache-2.0
#include "control/link/launch_id_search.h"

#include <utility>

namespace gradmon {
namespace {

using Time = LaunchIdSearch::Time;

constexpr Time kFastInterval{1'000};
constexpr Time kFastPeriod{60'000};
constexpr Time kSlowInterval{10'000};

}  // namespace

LaunchIdSearch::LaunchIdSearch(AskForLaunchId ask, Time now)
    : ask_(std::move(ask)), start_(now), next_(now) {}

std::optional<LaunchId> LaunchIdSearch::poll(Time now) {
  if (auto found = try_.poll()) {
    last_error_ = *found ? "" : found->error();
    if (*found && **found) known_ = std::move(***found);
  }
  if (!known_ && !try_.under_way() && now >= next_) {
    next_ = now + (now - start_ < kFastPeriod ? kFastInterval : kSlowInterval);
    try_.begin(ask_);
  }
  return known_;
}

}  // namespace gradmon
