// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/native_call_sites.h"

#include "hooks/observe/forward_tap.h"

namespace gradmon {

NativeCallSites::NativeCallSites(const std::vector<WatchedModule>& modules)
    : names_([&] {
        std::vector<Name> names;
        for (const WatchedModule& module : modules) names.push_back({module.name, module.vpp_stage});
        return names;
      }()) {}

CallSite NativeCallSites::here() const {
  CallSite site{"native", {}, 0};
  for (const std::size_t module : modules_around()) {
    if (module >= names_.size()) continue;
    const Name& name = names_[module];
    if (site.frames.empty()) site.vpp_stage = name.vpp_stage;
    site.frames.push_back(name.path.empty() ? "native" : "native[" + name.path + "]");
  }
  if (!site.frames.empty()) site.place = site.frames.front();
  return site;
}

}  // namespace gradmon
