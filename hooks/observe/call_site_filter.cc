// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/call_site_filter.h"

#include <re2/re2.h>

#include <algorithm>

#include "control/log.h"

namespace gradmon {

CallSiteFilter::CallSiteFilter(const std::vector<std::string>& patterns) {
  for (const std::string& text : patterns) {
    auto pattern = std::make_unique<const re2::RE2>(text, re2::RE2::Quiet);
    if (!pattern->ok()) log_warn("cc_codeline: invalid pattern \"" + text + "\": " + pattern->error());
    patterns_.push_back(std::move(pattern));
  }
}

CallSiteFilter::~CallSiteFilter() = default;

bool CallSiteFilter::select(const CallSite& site) const {
  if (patterns_.empty()) return true;
  return std::any_of(patterns_.begin(), patterns_.end(), [&](const auto& pattern) {
    const auto found_in = [&](const std::string& text) { return re2::RE2::PartialMatch(text, *pattern); };
    return found_in(site.place) || std::any_of(site.frames.begin(), site.frames.end(), found_in);
  });
}

}  // namespace gradmon
