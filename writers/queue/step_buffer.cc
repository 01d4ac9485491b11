// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/step_buffer.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace gradmon {
namespace {

bool comes_first(const Record& a, const Record& b) {
  return std::tie(a.kind, a.sequence) < std::tie(b.kind, b.sequence);
}

}  // namespace

void StepBuffer::add(const std::vector<Record>& records) {
  auto home = steps_.end();
  for (const Record& record : records) {
    const Key key{record.revision, record.step};
    if (key <= last_) {
      ++lost_;
      continue;
    }
    if (home == steps_.end() || home->first != key) {
      home = steps_.try_emplace(key).first;
      if (home->second.capacity() == 0) home->second.swap(spare_);
    }
    home->second.push_back(record);
    ++held_;
    ++held_by_kind_[static_cast<std::size_t>(record.kind)];
  }
}

std::size_t StepBuffer::count(Revision revision, Step step) const {
  const auto home = steps_.find({revision.value, step.value});
  return home == steps_.end() ? 0 : home->second.size();
}

std::vector<Record>& StepBuffer::close(Revision revision, Step step) {
  last_ = {revision.value, step.value};
  closed_.clear();
  while (!steps_.empty() && steps_.begin()->first <= last_) {
    const auto oldest = steps_.begin();
    held_ -= oldest->second.size();
    for (const Record& record : oldest->second) --held_by_kind_[static_cast<std::size_t>(record.kind)];
    if (oldest->first == last_) {
      closed_.swap(oldest->second);
    } else {
      lost_ += oldest->second.size();
    }
    oldest->second.clear();
    if (spare_.capacity() < oldest->second.capacity()) spare_.swap(oldest->second);
    steps_.erase(oldest);
  }
  if (!std::is_sorted(closed_.begin(), closed_.end(), comes_first)) {
    std::stable_sort(closed_.begin(), closed_.end(), comes_first);
  }
  return closed_;
}

void StepBuffer::clear() {
  lost_ += held_;
  held_ = 0;
  held_by_kind_ = {};
  steps_.clear();
}

}  // namespace gradmon
