// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/target_match.h"

#include <re2/re2.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "control/text/words.h"

namespace gradmon {
namespace {

// Number of unmatched patterns that get suggestions: name_suggestions() reads all names of the model.
constexpr std::size_t kPatternsWithSuggestions = 8;

// The older short form: the squashed name without its leading `layers.` or `layer.`.
std::string short_name(const std::string& squashed) {
  for (const std::string_view start : {"layers.", "layer."}) {
    if (squashed.compare(0, start.size(), start) == 0) return squashed.substr(start.size());
  }
  return squashed;
}

std::vector<std::string> forms_of(const TargetName& name) {
  const std::string plain = plain_name(name.name);
  const std::string full = unwrapped_name(name.name);
  // With the leading dot, `layers.0.norm` is squashed like `decoder.layers.0.norm`: at `layers`.
  std::string squashed = squashed_name("." + plain);
  if (squashed.front() == '.') squashed.erase(0, 1);
  std::vector<std::string> forms{plain, full, squashed, squashed_name(full), short_name(squashed)};
  if (!name.root_name.empty()) forms.push_back(name.root_name);
  std::sort(forms.begin(), forms.end());
  forms.erase(std::unique(forms.begin(), forms.end()), forms.end());
  return forms;
}

// The targets of a config, and whether each has matched a name.
class Targets {
 public:
  explicit Targets(const std::vector<std::string>& targets) {
    for (const std::string& target : targets) found_.emplace(plain_target(target), false);
  }

  // Returns true if a target equals the name in one of its forms, or a module around it. `root`: root_name().
  bool match_within(int vpp_stage, const std::vector<std::string>& forms, const std::string& root) {
    const std::string stage = std::to_string(vpp_stage) + ":";
    bool covered = mark("") | mark(root);
    covered |= mark(stage) | mark(stage + root);
    for (const std::string& form : forms) {
      for (std::size_t end = form.find('.');; end = form.find('.', end + 1)) {
        const std::string_view prefix = std::string_view(form).substr(0, end);
        covered |= mark(prefix);
        covered |= mark(stage + std::string(prefix));
        if (end == std::string::npos) break;
      }
    }
    return covered;
  }

  // Returns true if a target equals the name in one of its forms.
  bool match_whole(int vpp_stage, const std::vector<std::string>& forms) {
    bool named = false;
    const std::string stage = std::to_string(vpp_stage) + ":";
    for (const std::string& form : forms) {
      named |= mark(form);
      named |= mark(stage + form);
    }
    return named;
  }

  bool found(const std::string& target) const { return found_.at(plain_target(target)); }

 private:
  bool mark(std::string_view prefix) {
    const auto entry = found_.find(prefix);
    if (entry == found_.end()) return false;
    return entry->second = true;
  }

  std::map<std::string, bool, std::less<>> found_;
};

class Patterns {
 public:
  explicit Patterns(const std::vector<std::string>& patterns) : found_(patterns.size(), false) {
    RE2::Options options;
    options.set_log_errors(false);
    for (const std::string& pattern : patterns) compiled_.push_back(std::make_unique<RE2>(pattern, options));
  }

  bool search(int vpp_stage, std::vector<std::string> forms) {
    const std::size_t plain = forms.size();
    for (std::size_t i = 0; i < plain; ++i) forms.push_back(std::to_string(vpp_stage) + ":" + forms[i]);
    bool any = false;
    for (std::size_t i = 0; i < compiled_.size(); ++i) {
      const RE2& pattern = *compiled_[i];
      const bool matches =
          pattern.ok() && std::any_of(forms.begin(), forms.end(), [&](const std::string& form) {
            return RE2::PartialMatch(form, pattern);
          });
      found_[i] = found_[i] || matches;
      any = any || matches;
    }
    return any;
  }

  bool found(std::size_t pattern) const { return found_[pattern]; }
  std::string error(std::size_t pattern) const {
    return compiled_[pattern]->ok() ? std::string() : compiled_[pattern]->error();
  }

 private:
  std::vector<std::unique_ptr<RE2>> compiled_;
  std::vector<bool> found_;
};

std::vector<UnmatchedPattern> explain(const TargetSelection& selection, const Targets& targets,
                                      const Patterns& patterns, const std::vector<TargetName>& names) {
  std::vector<UnmatchedPattern> unmatched;
  for (const std::string& target : selection.targets) {
    if (!targets.found(target)) unmatched.push_back({target, {}, {}});
  }
  for (std::size_t i = 0; i < selection.target_regex.size(); ++i) {
    if (!patterns.found(i)) unmatched.push_back({selection.target_regex[i], {}, patterns.error(i)});
  }
  for (std::size_t i = 0; i < std::min(kPatternsWithSuggestions, unmatched.size()); ++i) {
    const std::string wanted = plain_target(unmatched[i].pattern);
    unmatched[i].suggestions = name_suggestions(without_stage(wanted), names);
  }
  return unmatched;
}

}  // namespace

std::vector<std::string> name_suggestions(std::string_view wanted, const std::vector<TargetName>& names) {
  std::set<std::string, std::less<>> candidates;
  for (const TargetName& name : names) {
    const std::string plain = plain_name(name.name);
    for (std::size_t end = plain.size(); end != std::string::npos && end > 0;
         end = plain.rfind('.', end - 1)) {
      if (!candidates.emplace(plain, 0, end).second) break;  // already known, with all its prefixes
    }
  }
  const std::size_t limit = std::max<std::size_t>(2, wanted.size() / 3);
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(wanted, candidate, limit);
    if (distance <= limit) near.emplace_back(distance, candidate);
  }
  const std::size_t kept = std::min<std::size_t>(3, near.size());
  std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(kept), near.end());
  std::vector<std::string> nearest;
  for (std::size_t i = 0; i < kept; ++i) nearest.push_back(std::move(near[i].second));
  return nearest;
}

MatchReport match_targets(const TargetSelection& selection, const std::vector<TargetName>& names) {
  Targets targets(selection.targets);
  Patterns patterns(selection.target_regex);
  const bool invert = selection.invert && !selection.target_regex.empty();
  const bool everything = selection.targets.empty() && (selection.target_regex.empty() || invert);

  MatchReport report;
  if (everything && selection.target_regex.empty()) {
    report.matched.resize(names.size());
    std::iota(report.matched.begin(), report.matched.end(), std::size_t{0});
    return report;
  }
  const std::string root = root_name(names);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto forms = forms_of(names[i]);
    const bool covered = targets.match_within(names[i].vpp_stage, forms, root) || everything;
    const bool searched = patterns.search(names[i].vpp_stage, forms);
    if (invert ? covered && !searched : covered || searched) report.matched.push_back(i);
  }
  report.unmatched = explain(selection, targets, patterns, names);
  return report;
}

bool is_named(std::string_view target, const TargetName& name) {
  const std::string wanted = plain_target(target);
  const std::string stage = std::to_string(name.vpp_stage) + ":";
  const auto forms = forms_of(name);
  return std::any_of(forms.begin(), forms.end(),
                     [&](const std::string& form) { return wanted == form || wanted == stage + form; });
}

MatchReport match_whole_names(const std::vector<std::string>& targets, const std::vector<TargetName>& names) {
  MatchReport report;
  if (targets.empty()) return report;
  Targets whole(targets);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (whole.match_whole(names[i].vpp_stage, forms_of(names[i]))) report.matched.push_back(i);
  }
  TargetSelection selection;
  selection.targets = targets;
  report.unmatched = explain(selection, whole, Patterns({}), names);
  return report;
}

}  // namespace gradmon
