// SPDX-License-Identifier: Apache-2.0
#include "hooks/native_call_sites.h"

#include <algorithm>
#include <utility>

namespace gradmon {

NativeCallSites::NativeCallSites(const std::vector<WatchedModule>& modules)
    : names_([&] {
        std::vector<Name> names;
        for (const WatchedModule& module : modules) names.push_back({module.name, module.vpp_stage});
        return names;
      }()) {}

CallSite NativeCallSites::here() const {
  CallSite site;
  const std::lock_guard lock(mutex_);
  const auto found = inside_.find(std::this_thread::get_id());
  if (found == inside_.end()) return {"native", {}, 0};
  for (auto module = found->second.rbegin(); module != found->second.rend(); ++module) {
    const Name& name = names_[*module];
    if (site.frames.empty()) site.vpp_stage = name.vpp_stage;
    site.frames.push_back(name.path.empty() ? "native" : "native[" + name.path + "]");
  }
  site.place = site.frames.front();
  return site;
}

void NativeCallSites::clear() {
  const std::lock_guard lock(mutex_);
  inside_.clear();
}

void NativeCallSites::before_forward(const ForwardVisit& visit, const ForwardTensors&) {
  if (visit.module >= names_.size()) return;
  const std::lock_guard lock(mutex_);
  inside_[std::this_thread::get_id()].push_back(visit.module);
}

void NativeCallSites::after_forward(const ForwardVisit& visit, const ForwardTensors&) {
  const std::lock_guard lock(mutex_);
  const auto found = inside_.find(std::this_thread::get_id());
  if (found == inside_.end()) return;
  std::vector<std::size_t>& stack = found->second;
  const auto entry = std::find(stack.rbegin(), stack.rend(), visit.module);
  if (entry != stack.rend()) stack.erase(entry.base() - 1, stack.end());
  if (stack.empty()) inside_.erase(found);
}

}  // namespace gradmon
