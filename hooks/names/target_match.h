// SPDX-License-Identifier: Apache-2.0
// Which names a config means. Strings in, strings out: no torch, no state, any
// thread. The hooks ask it which parameters to watch, the agreement how many of
// the names taken down in watch() a plan would match.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hooks/names/squash_name.h"

namespace gradmon {

// What a config says about names. Nothing given selects everything.
struct TargetSelection {
  // Module or parameter names; a module's covers all beneath it. Compared by
  // whole name parts (`layers.1` is not `layers.10`); `module.` and the
  // wrappers' parts (see plain_name) and a leading `{vpp}:` may be there or
  // not, and the name may be full or squashed.
  std::vector<std::string> targets;
  // RE2 patterns, searched in each of the forms of a name.
  std::vector<std::string> target_regex;
  // Selects what no pattern matches: of `targets`, where those are given.
  // Otherwise targets and patterns add up. Without a pattern it means nothing.
  bool invert = false;
};

// An entry of the config that selected nothing.
struct UnmatchedPattern {
  std::string pattern;
  std::vector<std::string> nearest;  // up to three names of the model, the closest first; may be empty
  std::string error;                 // why the pattern is no valid RE2 pattern; empty if it is one
};

struct MatchReport {
  std::vector<std::size_t> matched;  // indices into the names given, rising
  std::vector<UnmatchedPattern> unmatched;
};

// Duplicate names each count. A pattern that is invalid matches nothing.
MatchReport match_targets(const TargetSelection& selection, const std::vector<TargetName>& names);

// Whether a target is that very name, in one of its forms, not a module around it.
bool is_named(std::string_view target, const TargetName& name);

// Those alone that a target names whole, not what lies beneath them; none where
// no target is given.
MatchReport match_whole_names(const std::vector<std::string>& targets, const std::vector<TargetName>& names);

}  // namespace gradmon
