// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/find/step_rows.h"

#include <algorithm>
#include <tuple>

namespace gradmon {
namespace {

constexpr std::size_t kMaxRowsOfAStep = 4'000'000;

auto key_of(const StepRow& row) { return std::tie(row.name, row.micro_step, row.repetition); }

}  // namespace

bool operator<(const StepRow& a, const StepRow& b) { return key_of(a) < key_of(b); }

StepRows::StepRows(int rank, Kind kind, const std::vector<KindFile>& files, NameIndex& names,
                   Problems& problems)
    : rank_(rank), kind_(kind), names_(names), problems_(problems), source_(files, problems) {
  ahead_ = source_.next();
}

void StepRows::keep(const Row& row) {
  const auto name = names_.id_of(row.vpp_stage, row.name);
  if (!name || rows_.size() == kMaxRowsOfAStep) {
    problems_.add(source_.path(), row.line,
                  name ? "more than 4 million rows of a step; the row is left out"
                       : "more than a million names; the row is left out");
    return;
  }
  StepRow kept;
  kept.name = *name;
  kept.micro_step = row.micro_step;
  kept.values = row.values;
  kept.mask = row.mask;
  kept.order = order_of(rank_, kind_, row);
  kept.line = row.line;
  if (files_.empty() || files_.back().native() != source_.path().native()) files_.push_back(source_.path());
  kept.file = &files_.back();
  rows_.push_back(kept);
}

void StepRows::count_repetitions() {
  std::stable_sort(rows_.begin(), rows_.end());
  for (std::size_t i = 1; i < rows_.size(); ++i) {
    const bool same = rows_[i].name == rows_[i - 1].name && rows_[i].micro_step == rows_[i - 1].micro_step;
    if (same) rows_[i].repetition = rows_[i - 1].repetition + 1;
  }
}

bool StepRows::next() {
  rows_.clear();
  files_.clear();
  if (ahead_ == nullptr) return false;
  step_ = ahead_->step;
  for (; ahead_ != nullptr && ahead_->step == step_; ahead_ = source_.next()) keep(*ahead_);
  count_repetitions();
  return true;
}

}  // namespace gradmon
