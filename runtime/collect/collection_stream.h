// SPDX-License-Identifier: Apache-2.0
// The destination of the rows of a Collection's hooks. Part of collection.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/collect/collection.h"
#include "runtime/output/output_document.h"
#include "runtime/output/replacing_writes.h"

namespace gradmon {

class Collection::Stream : public RecordStream {
 public:
  Stream(NameTable& names, RecordQueue& queue, TargetLedger& ledger, ScopeNotes& scopes, Settings settings,
         WriterThread& writer, std::function<void(const std::string&)> on_absence)
      : names_(names),
        queue_(queue),
        ledger_(ledger),
        scopes_(scopes),
        settings_(std::move(settings)),
        writer_(writer),
        on_absence_(std::move(on_absence)) {}
  std::uint32_t target_id(int vpp_stage, std::string_view name) override {
    const std::uint32_t id = names_.intern(name, vpp_stage);
    if (id == 0) on_absence_("too many different names of rows: those with further ones are left out");
    return id;
  }
  std::uint32_t scale_target_id(std::uint32_t target) override {
    const std::uint32_t scale = names_.intern(names_.name(target) + ".scale", names_.vpp_stage(target));
    scales_.insert(scale);
    return scale;
  }
  std::uint32_t shape_id(std::string_view shape) override { return names_.intern_shape(shape); }
  bool push(const Record& record) noexcept override {
    if (record.target == 0) return true;  // dropped: NameTable::intern()
    const bool of_scale = !scales_.empty() && scales_.count(record.target) != 0;
    if (observer_ && !of_scale) observer_->on_record(record);
    // The target has fired, even if the queue drops the record.
    ledger_.count_row(record.kind, record.target);
    scopes_.count_row(record.kind, record.target);
    if (held_ == nullptr) return queue_.push(record);
    try {
      held_->push_back(record);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }
  bool push(const Histogram& histogram) noexcept override {
    if (histogram.target == 0) return true;
    ledger_.count_row(histogram.kind, histogram.target);
    scopes_.count_row(histogram.kind, histogram.target);
    return queue_.histograms().push(histogram);
  }
  bool take_late(const std::shared_ptr<LateValues>& late) noexcept override {
    if (observer_ != nullptr && observer_->takes_norms()) return false;
    queue_.set_late_values(late);
    return true;
  }
  void note_missing_row(Kind kind) noexcept override {
    if (observer_) observer_->on_missing_row(kind);
  }
  void note_reason(Kind kind, std::uint32_t target, std::string_view why) noexcept override {
    ledger_.note_reason(kind, target, why);
  }
  void note_absence(const std::string& sentence) override { on_absence_(sentence); }
  void note_scope(Kind kind, std::uint32_t target, const ScopeText& scope) noexcept override {
    scopes_.note(kind, target, scope);
  }
  void publish(Document document, std::string text) noexcept override {
    writer_.write_file(writes_[static_cast<std::size_t>(document)].next(
        [directory = settings_.directory, rank = settings_.rank, document, text = std::move(text)] {
          return write_document(*directory, rank, document, text);
        }));
  }
  // `observer` sees every record before it is queued. Null: none. It must live until the next call.
  void set_observer(TrainingScalars* observer) { observer_ = observer; }
  // Records go to `held` instead of the queue. Null: into the queue.
  void hold(std::vector<Record>* held) { held_ = held; }

 private:
  TrainingScalars* observer_ = nullptr;
  std::vector<Record>* held_ = nullptr;
  std::unordered_set<std::uint32_t> scales_;  // targets of scales: their norms are not the model's
  NameTable& names_;
  RecordQueue& queue_;
  TargetLedger& ledger_;
  ScopeNotes& scopes_;
  const Settings settings_;
  WriterThread& writer_;
  const std::function<void(const std::string&)> on_absence_;
  std::array<ReplacingWrites, 2> writes_;  // by Document
};

}  // namespace gradmon
