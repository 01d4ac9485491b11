// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "control/link/background_call.h"

namespace gradmon {

struct LaunchId {
  std::string id;
  std::string source;  // for people: "TORCHELASTIC_RUN_ID"
};

inline bool operator==(const LaunchId& a, const LaunchId& b) { return a.id == b.id && a.source == b.source; }

// One try: the id; nothing where rank 0 has not left it yet; an error where the
// store does not answer. A try takes 3 s at most and blocks its thread for so
// long: never the training thread. One try at a time, on any thread.
using AskForLaunchId = std::function<tl::expected<std::optional<LaunchId>, std::string>()>;

// Asks for the launch id until it is known: at once, then each second for the first
// minute, then each ten. Each try runs on a thread of its own, one at a time, and
// the thread ends with the try, also where nobody waits for it any more. All
// members belong to one thread (the agent's); none blocks.
class LaunchIdSearch {
 public:
  using Time = std::chrono::milliseconds;  // on any clock that goes on

  // `ask` is not null; its errors and its being nothing are retried alike.
  LaunchIdSearch(AskForLaunchId ask, Time now);
  LaunchIdSearch(const LaunchIdSearch&) = delete;
  LaunchIdSearch& operator=(const LaunchIdSearch&) = delete;

  // Takes in what a try has found, and begins another where one is due.
  std::optional<LaunchId> poll(Time now);
  // When to call poll() again.
  Time due(Time now) const;
  // Why the last try has found nothing; "" where rank 0 just has not come.
  const std::string& objection() const { return objection_; }

 private:
  // Constant after construction.
  const AskForLaunchId ask_;
  const Time start_;

  Time next_;
  BackgroundCall<std::optional<LaunchId>> try_;
  std::string objection_;
  std::optional<LaunchId> known_;
};

}  // namespace gradmon
