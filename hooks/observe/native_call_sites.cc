// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/native_call_sites.h"

#include "hooks/names/target_names.h"

namespace gradmon {

NativeCallSites::NativeCallSites(const std::vector<WatchedModule>& modules)
    : names_(module_names(modules)), indices_(module_indices(modules)) {}

CallSite NativeCallSites::here() const {
  CallSite site{"native", {}, 0};
  for (const std::size_t module : modules_around(indices_)) {
    const TargetName& name = names_[module];
    if (site.frames.empty()) site.vpp_stage = name.vpp_stage;
    site.frames.push_back(name.name.empty() ? "native" : "native[" + name.name + "]");
  }
  if (!site.frames.empty()) site.place = site.frames.front();
  return site;
}

}  // namespace gradmon
