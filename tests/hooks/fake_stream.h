// SPDX-License-Identifier: Apache-2.0
// Keeps the records and documents of hooks in memory, and fails if a test says so.
#pragma once

#include <cmath>
#include <map>
#include <stdexcept>
#include <vector>

#include "hooks/hook_set.h"

namespace gradmon {

class FakeStream : public RecordStream {
 public:
  bool targets_fail = false;
  bool shapes_fail = false;
  bool full = false;
  std::vector<Record> records;
  std::vector<Histogram> histograms;

  std::uint32_t target_id(int vpp_stage, std::string_view name) override {
    if (targets_fail) throw std::runtime_error("no more targets");
    return intern(std::to_string(vpp_stage) + ":" + std::string(name));
  }
  std::uint32_t shape_id(std::string_view shape) override {
    if (shapes_fail) throw std::runtime_error("no more shapes");
    return intern(std::string(shape));
  }
  bool push(const Record& record) noexcept override {
    if (!full) records.push_back(record);
    return !full;
  }
  bool push(const Histogram& histogram) noexcept override {
    if (!full) histograms.push_back(histogram);
    return !full;
  }

  void note_missing_row(Kind kind) noexcept override { missing.push_back(kind); }
  std::vector<Kind> missing;
  void note_reason(Kind, std::uint32_t target, std::string_view why) noexcept override {
    reasons[text(target)] = why;
  }
  std::map<std::string, std::string> reasons;  // by target, as "0:fc.output"
  void publish(Document document, std::string text) noexcept override {
    documents[document] = std::move(text);
  }
  std::map<Document, std::string> documents;

  const std::string& text(std::uint32_t id) const { return texts_.at(id); }

  // The targets ("0:name") of the records of one kind, in order of arrival.
  std::vector<std::string> targets(Kind kind) const {
    std::vector<std::string> found;
    for (const Record& record : records) {
      if (record.kind == kind) found.push_back(text(record.target));
    }
    return found;
  }

  // The only histogram of that kind and target; null if there is none or more than one.
  const Histogram* histogram(Kind kind, const std::string& target) const {
    const Histogram* found = nullptr;
    int count = 0;
    for (const Histogram& one : histograms) {
      if (one.kind != kind || text(one.target) != target) continue;
      found = &one;
      ++count;
    }
    return count == 1 ? found : nullptr;
  }

  // The norm in the only record of that kind and target; NaN if there is none or more than one.
  double norm(Kind kind, const std::string& target) const {
    double found = std::nan("");
    int count = 0;
    for (const Record& record : records) {
      if (record.kind != kind || text(record.target) != target) continue;
      found = record.values[static_cast<std::size_t>(Op::norm)];
      ++count;
    }
    return count == 1 ? found : std::nan("");
  }

 private:
  std::uint32_t intern(const std::string& wanted) {
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (texts_[i] == wanted) return static_cast<std::uint32_t>(i);
    }
    texts_.push_back(wanted);
    return static_cast<std::uint32_t>(texts_.size() - 1);
  }

  std::vector<std::string> texts_;
};

// A collected step, in which the program does `body`.
template <typename Body>
void collect(HookSet& hooks, std::int64_t step, Body body) {
  hooks.begin_step({step}, kInCollected);
  body();
  hooks.end_step();
}

// The same with an update of all parameters at its end.
template <typename Body>
void collect_update(HookSet& hooks, std::int64_t step, Body body) {
  collect(hooks, step, [&] {
    body();
    hooks.before_update({});
  });
}

}  // namespace gradmon
