// SPDX-License-Identifier: Apache-2.0
#include "control/agree/target_status.h"

#include <algorithm>
#include <utility>

namespace gradmon {
namespace {

constexpr std::size_t kMostSentences = 16 * 1024;  // bytes
constexpr std::size_t kNumbers = 48;               // bytes for an entry's numbers and lengths, at most
constexpr std::size_t kMostAttached = 4 * 1024;    // bytes

std::size_t bytes_of(const UnmatchedTarget& entry) {
  std::size_t bytes = kNumbers + entry.pattern.size() + entry.error.size();
  for (const std::string& name : entry.nearest) bytes += kNumbers + name.size();
  return bytes;
}

std::size_t bytes_of(const std::string& line) { return kNumbers + line.size(); }

std::size_t bytes_of(const TargetStatus& entry) {
  return kNumbers + entry.kind.size() + entry.name.size() + entry.why.size();
}

// A byte budget. Once an entry does not fit, no further entry is taken.
class ByteBudget {
 public:
  explicit ByteBudget(std::size_t bytes) : left_(bytes) {}

  template <typename Entry>
  bool take(const Entry& entry) {
    const std::size_t bytes = bytes_of(entry);
    full_ = full_ || bytes > left_;
    if (!full_) left_ -= bytes;
    return !full_;
  }

 private:
  std::size_t left_;
  bool full_ = false;
};

std::int64_t listed(const TargetList& list) {
  return static_cast<std::int64_t>(list.unmatched.size() + list.targets.size());
}

}  // namespace

std::string describe(const UnmatchedTarget& unmatched) {
  std::string text = "\"" + unmatched.pattern + "\" matches nothing";
  if (!unmatched.error.empty()) return text + ": " + unmatched.error;
  for (std::size_t i = 0; i < unmatched.nearest.size(); ++i) {
    text += (i == 0 ? " (nearest: " : ", ") + unmatched.nearest[i];
  }
  return unmatched.nearest.empty() ? text : text + ")";
}

std::vector<std::string> describe_all(const std::vector<UnmatchedTarget>& unmatched) {
  std::vector<std::string> all;
  std::size_t left = kMostSentences;
  for (const UnmatchedTarget& one : unmatched) {
    std::string text = describe(one);
    if (text.size() > left) break;
    left -= text.size();
    all.push_back(std::move(text));
  }
  if (const std::size_t more = unmatched.size() - all.size(); more > 0)
    all.push_back("and " + std::to_string(more) + " more names or patterns match nothing");
  return all;
}

TargetList only_silent_or_unmatched(TargetList list) {
  const std::int64_t before = listed(list);
  const auto fires = [](const TargetStatus& target) { return !target.silent(); };
  list.targets.erase(std::remove_if(list.targets.begin(), list.targets.end(), fires), list.targets.end());
  list.left_out += before - listed(list);
  return list;
}

TargetList within(TargetList list, std::size_t most_bytes) {
  const std::int64_t before = listed(list);
  const std::size_t for_attached = std::min(most_bytes / 4, kMostAttached);
  ByteBudget attached(for_attached);
  const auto full = [&](const std::string& line) { return !attached.take(line); };
  list.attached.erase(std::find_if(list.attached.begin(), list.attached.end(), full), list.attached.end());
  ByteBudget room(list.attached.empty() ? most_bytes : most_bytes - for_attached);
  std::vector<UnmatchedTarget> unmatched;
  for (UnmatchedTarget& entry : list.unmatched) {
    if (room.take(entry)) unmatched.push_back(std::move(entry));
  }
  std::vector<bool> keep(list.targets.size());
  for (const bool silent : {true, false}) {
    for (std::size_t i = 0; i < keep.size(); ++i) {
      if (list.targets[i].silent() == silent) keep[i] = room.take(list.targets[i]);
    }
  }
  std::vector<TargetStatus> targets;
  for (std::size_t i = 0; i < keep.size(); ++i) {
    if (keep[i]) targets.push_back(std::move(list.targets[i]));
  }
  list.unmatched = std::move(unmatched);
  list.targets = std::move(targets);
  list.left_out += before - listed(list);
  return list;
}

}  // namespace gradmon
