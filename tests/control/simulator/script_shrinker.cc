// SPDX-License-Identifier: Apache-2.0
#include "tests/control/simulator/script_shrinker.h"

#include <algorithm>

namespace gradmon {
namespace {

using GoesWrong = std::function<bool(const Script&)>;

// Leaves out each run of `length` incidents that is not needed.
bool without_runs(Script& script, std::size_t length, const GoesWrong& goes_wrong) {
  bool any = false;
  for (std::size_t at = 0; at < script.incidents.size();) {
    Script tried = script;
    const auto first = tried.incidents.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t count = std::min(length, tried.incidents.size() - at);
    tried.incidents.erase(first, first + static_cast<std::ptrdiff_t>(count));
    if (goes_wrong(tried)) {
      script = std::move(tried);
      any = true;
    } else {
      at += length;
    }
  }
  return any;
}

void plainer(Script& script, const GoesWrong& goes_wrong) {
  static constexpr std::int64_t Script::*fields[] = {&Script::coupled, &Script::first_step};
  for (const auto field : fields) {
    Script tried = script;
    tried.*field = 0;
    if (script.*field != 0 && goes_wrong(tried)) script = std::move(tried);
  }
  while (script.world > 1) {
    Script tried = script;
    tried.world -= 1;
    tried.step_ms.pop_back();
    tried.joins.pop_back();
    if (!goes_wrong(tried)) break;
    script = std::move(tried);
  }
}

}  // namespace

Script shrink(Script script, const GoesWrong& goes_wrong) {
  plainer(script, goes_wrong);
  std::size_t length = std::max<std::size_t>(1, script.incidents.size() / 2);
  while (!script.incidents.empty()) {
    const bool any = without_runs(script, length, goes_wrong);
    if (length == 1 && !any) break;
    length = std::max<std::size_t>(1, length / 2);
  }
  plainer(script, goes_wrong);
  return script;
}

}  // namespace gradmon
