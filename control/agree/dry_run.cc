// SPDX-License-Identifier: Apache-2.0
#include "control/agree/dry_run.h"

#include <algorithm>
#include <utility>

namespace gradmon {
namespace {

constexpr Ticks kAskAgainAfter{250};
constexpr Ticks kAskFor{2'000};
constexpr std::size_t kMostOpen = 16;
constexpr std::size_t kMostOfOne = 48 * 1024;   // bytes of targets in the answer of one rank
constexpr std::size_t kMostOfAll = 512 * 1024;  // bytes of targets in the answers of all ranks

}  // namespace

void DryRuns::ask(std::string id, PlanPtr plan, Ticks now) {
  for (const OpenDryRun& question : open_) {
    if (question.id == id) return;
  }
  if (open_.size() == kMostOpen) open_.erase(open_.begin());
  open_.push_back({std::move(id), std::move(plan), now, {}, {}});
}

void DryRuns::on_dry_run_answer(Rank rank, const DryRunAnswer& answer) {
  for (OpenDryRun& question : open_) {
    if (question.id == answer.id) question.answers.emplace(rank.value, answer);
  }
}

std::vector<std::pair<std::vector<int>, DryRun>> DryRuns::due(const Membership& members, Ticks now) {
  std::vector<std::pair<std::vector<int>, DryRun>> due;
  const std::size_t room = std::min(kMostOfOne, kMostOfAll / static_cast<std::size_t>(members.size()));
  for (OpenDryRun& question : open_) {
    if (question.asked && now - *question.asked < kAskAgainAfter) continue;
    question.asked = now;
    std::vector<int> ranks;
    for (int rank = 0; rank < members.size(); ++rank) {
      if (members.of(rank).takes_part() && question.answers.count(rank) == 0) ranks.push_back(rank);
    }
    if (!ranks.empty()) due.emplace_back(std::move(ranks), DryRun{question.id, question.plan, room});
  }
  return due;
}

std::vector<DryRunResult> DryRuns::take_ended(const Membership& members, Ticks now) {
  std::vector<DryRunResult> ended;
  const auto has_ended = [&](const OpenDryRun& question) {
    DryRunResult result;
    result.id = question.id;
    bool all = true;
    for (int rank = 0; rank < members.size(); ++rank) {
      const auto answer = question.answers.find(rank);
      if (answer == question.answers.end()) {
        if (members.of(rank).gone()) continue;
        result.answers.push_back({Rank{rank}, false, 0, "", {}});
        all = all && !members.of(rank).takes_part();
      } else {
        const DryRunAnswer& given = answer->second;
        result.answers.push_back({Rank{rank}, true, given.matches, given.objection, given.targets});
      }
    }
    if (!all && now - question.begun < kAskFor) return false;
    ended.push_back(std::move(result));
    return true;
  };
  open_.erase(std::remove_if(open_.begin(), open_.end(), has_ended), open_.end());
  return ended;
}

}  // namespace gradmon
