// SPDX-License-Identifier: Apache-2.0
#include "tests/control/simulator/script_shrinker.h"

#include <algorithm>

namespace gradmon {
namespace {

using Fails = std::function<bool(const Script&)>;

// Leaves out each run of `length` incidents that is not needed. Returns whether it left out any.
bool remove_runs(Script& script, std::size_t length, const Fails& fails) {
  bool any = false;
  for (std::size_t at = 0; at < script.incidents.size();) {
    Script tried = script;
    const auto first = tried.incidents.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t count = std::min(length, tried.incidents.size() - at);
    tried.incidents.erase(first, first + static_cast<std::ptrdiff_t>(count));
    if (fails(tried)) {
      script = std::move(tried);
      any = true;
    } else {
      at += length;
    }
  }
  return any;
}

void simplify_job(Script& script, const Fails& fails) {
  static constexpr std::int64_t Script::*fields[] = {&Script::coupled, &Script::first_step};
  for (const auto field : fields) {
    Script tried = script;
    tried.*field = 0;
    if (script.*field != 0 && fails(tried)) script = std::move(tried);
  }
  while (script.world > 1) {
    Script tried = script;
    tried.world -= 1;
    tried.step_ms.pop_back();
    tried.joins.pop_back();
    if (!fails(tried)) break;
    script = std::move(tried);
  }
}

}  // namespace

Script shrink(Script script, const Fails& fails) {
  simplify_job(script, fails);
  std::size_t length = std::max<std::size_t>(1, script.incidents.size() / 2);
  while (!script.incidents.empty()) {
    const bool any = remove_runs(script, length, fails);
    if (length == 1 && !any) break;
    length = std::max<std::size_t>(1, length / 2);
  }
  simplify_job(script, fails);
  return script;
}

}  // namespace gradmon
