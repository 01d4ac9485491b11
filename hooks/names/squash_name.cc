// SPDX-License-Identifier: Apache-2.0
#include "hooks/names/squash_name.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <unordered_set>
#include <utility>

namespace gradmon {
namespace {

constexpr std::string_view kWrappers[] = {"_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"};

bool is_wrapper(std::string_view part) {
  return std::find(std::begin(kWrappers), std::end(kWrappers), part) != std::end(kWrappers);
}

template <typename Drop>
std::string without_parts(std::string_view name, Drop drop) {
  std::string kept;
  bool first = true;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (!drop(part)) {
      if (!first) kept += '.';
      kept += part;
      first = false;
    }
    begin = end + 1;
  }
  return kept;
}

// Position of the rightmost match of any of `starts`, without its dot, as the greedy regex `^.*\.(` finds
// it; npos if none matches.
std::size_t last_part(std::string_view name, std::initializer_list<std::string_view> starts) {
  std::size_t last = std::string_view::npos;
  for (const std::string_view start : starts) {
    const std::size_t dot = name.rfind(start);
    if (dot != std::string_view::npos && (last == std::string_view::npos || dot + 1 > last)) last = dot + 1;
  }
  return last;
}

// Length of the leading `{vpp}:` (number of the model chunk); 0 if there is none.
std::size_t stage_length(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  return digits > 0 && digits < text.size() && text[digits] == ':' ? digits + 1 : 0;
}

// The names in a config's targets, with or without a leading `{vpp}:`.
class WrittenNames {
 public:
  explicit WrittenNames(const std::vector<std::string>& targets) {
    for (const std::string& target : targets) plain_.insert(plain_target(target));
  }
  bool have(int vpp_stage, std::string_view name) const {
    const std::string plain = plain_name(name);
    return plain_.count(plain) + plain_.count(std::to_string(vpp_stage) + ':' + plain) > 0;
  }

 private:
  std::unordered_set<std::string> plain_;
};

}  // namespace

std::string unwrapped_name(std::string_view name) { return without_parts(name, is_wrapper); }

std::string plain_name(std::string_view name) {
  return without_parts(
      name, [](std::string_view part) { return part.empty() || part == "module" || is_wrapper(part); });
}

std::string plain_target(std::string_view target) {
  const std::size_t stage = stage_length(target);
  return std::string(target.substr(0, stage)) + plain_name(target.substr(stage));
}

std::string_view without_stage(std::string_view target) { return target.substr(stage_length(target)); }

std::string squashed_name(std::string_view name) {
  const std::initializer_list<std::string_view> patterns[] = {
      {".layer.", ".layers."}, {".embedding.", ".embeddings."}, {".final"}, {".output"}, {".norm"}};
  for (const auto& starts : patterns) {
    const std::size_t begin = last_part(name, starts);
    if (begin != std::string_view::npos) return std::string(name.substr(begin));
  }
  return std::string(name);
}

std::vector<std::string> record_names(const std::vector<TargetName>& names, Squash squash,
                                      const std::vector<std::string>& written) {
  const WrittenNames in_config(written);
  std::vector<std::string> full, chosen;
  for (const TargetName& name : names) {
    full.push_back(unwrapped_name(name.name));
    const std::string squashed = squash == Squash::yes ? squashed_name(full.back()) : full.back();
    const bool in_full =
        in_config.have(name.vpp_stage, full.back()) && !in_config.have(name.vpp_stage, squashed);
    chosen.push_back(in_full ? full.back() : squashed);
  }
  // Repeated, because a full name may collide with the squashed name of another.
  for (bool changed = squash == Squash::yes; changed;) {
    changed = false;
    std::map<std::pair<int, std::string_view>, std::size_t> uses;
    for (std::size_t i = 0; i < names.size(); ++i) ++uses[{names[i].vpp_stage, chosen[i]}];
    std::vector<std::size_t> colliding;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (chosen[i] != full[i] && uses[{names[i].vpp_stage, chosen[i]}] > 1) colliding.push_back(i);
    }
    for (const std::size_t i : colliding) chosen[i] = full[i];
    changed = !colliding.empty();
  }
  return chosen;
}

}  // namespace gradmon
