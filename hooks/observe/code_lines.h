// SPDX-License-Identifier: Apache-2.0
// Which call sites a config means (cc_codeline).
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
class CodeLines {
 public:
  // RE2 patterns as "train.py\[23\]"; none: every site. One that is no pattern
  // is warned of and selects nothing.
  explicit CodeLines(const std::vector<std::string>& patterns);
  ~CodeLines();

  // Whether a pattern is found in the place or in one of the frames.
  bool select(const CallSite& site) const;

 private:
  std::vector<std::unique_ptr<const re2::RE2>> patterns_;
};

}  // namespace gradmon
