// SPDX-License-Identifier: Apache-2.0
// Selects call sites by the config's patterns (cc_codeline).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hooks/observe/call_site.h"

namespace re2 {
class RE2;
}

namespace gradmon {

// Immutable.
class CallSiteFilter {
 public:
  // RE2 patterns such as "train.py\[23\]"; an empty list selects every site. An invalid pattern is logged
  // and selects nothing.
  explicit CallSiteFilter(const std::vector<std::string>& patterns);
  ~CallSiteFilter();

  // Returns true if a pattern matches a part of the place or of a frame.
  bool select(const CallSite& site) const;

 private:
  std::vector<std::unique_ptr<const re2::RE2>> patterns_;
};

}  // namespace gradmon
