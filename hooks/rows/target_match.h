// SPDX-License-Identifier: Apache-2.0
// Which names of a model a config selects. Pure, no torch, any thread. The hooks use it to select what to
// watch; the agreement uses it to count the names recorded in watch() that a plan would match.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hooks/rows/target_names.h"

namespace gradmon {

// Suggestions for a misspelt name ("did you mean …?"). Pure. Up to three candidates, the closest first, whose
// edit distance from `wanted` is at most a third of its length (or 2, if that is more). Candidates are
// `names` and the modules that contain them, as plain_name().
std::vector<std::string> name_suggestions(std::string_view wanted, const std::vector<TargetName>& names);

// The names that a config selects. Without targets and patterns: all names.
struct TargetSelection {
  // Names of modules or parameters; a module selects everything beneath it. Compared part by part
  // (`layers.1` does not select `layers.10`). A target may be full or squashed, with or without `module.`,
  // the parts of wrappers (see plain_name) and a leading `{vpp}:`.
  std::vector<std::string> targets;
  // RE2 patterns, searched in every form of a name, with and without `{vpp}:`.
  std::vector<std::string> target_regex;
  // true: selects the names that no pattern matches; if there are targets, only among the names that they
  // select. false: selects the names that a target or a pattern matches. Ignored if there is no pattern.
  bool invert = false;
};

// An entry of the config that selected nothing.
struct UnmatchedPattern {
  std::string pattern;
  std::vector<std::string> suggestions;  // up to three names of the model, the closest first; may be empty
  std::string error;                     // why the pattern is not valid RE2; empty if it is valid
};

struct MatchReport {
  std::vector<std::size_t> matched;  // indices into `names`, ascending
  std::vector<UnmatchedPattern> unmatched;
};

// Every occurrence of a duplicate name is matched. An invalid pattern matches nothing.
MatchReport match_targets(const TargetSelection& selection, const std::vector<TargetName>& names);

// Returns true if `target` equals the name in one of its forms. A module that contains the name does not
// match.
bool is_named(std::string_view target, const TargetName& name);

// Matches the names that a target equals (see is_named); names beneath a target do not match. Without
// targets nothing matches.
MatchReport match_whole_names(const std::vector<std::string>& targets, const std::vector<TargetName>& names);

}  // namespace gradmon
