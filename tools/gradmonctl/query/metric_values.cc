// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/query/metric_values.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace gradmon {
namespace {

using Relation = ColumnConstraint::Relation;
enum Column { kRank, kStep, kMetric, kTarget, kVppStage, kMicroStep, kOp, kValue };

// The rows that a scan must find. SQLite checks each row again, so this ignores constraints that it cannot
// use.
struct Selection {
  std::optional<std::int64_t> rank;
  StepRange steps;
  std::optional<std::string> metric;
  std::optional<std::string> op;
  std::optional<std::string> target;
  std::optional<std::string> target_glob;
  bool nothing = false;  // a condition that no row meets
};

void narrow(StepRange& steps, Relation relation, std::int64_t step) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  const bool from = relation == Relation::equal || relation == Relation::greater_equal;
  const bool to = relation == Relation::equal || relation == Relation::less_equal;
  if (from) steps.first = std::max(steps.first, step);
  if (to) steps.last = std::min(steps.last, step);
  if (relation == Relation::greater) steps.first = std::max(steps.first, step == kMost ? step : step + 1);
  if (relation == Relation::less) steps.last = std::min(steps.last, step == -kMost ? step : step - 1);
}

Selection selection_of(const std::vector<BoundConstraint>& constraints) {
  Selection selection;
  for (const BoundConstraint& constraint : constraints) {
    const SqliteValue& value = constraint.value;
    if (value.type == SqliteValue::Type::null) selection.nothing = true;
    const bool text = value.type == SqliteValue::Type::text;
    const bool integer = value.type == SqliteValue::Type::integer;
    const bool equal = constraint.on.relation == Relation::equal;
    if (constraint.on.column == kRank && integer) selection.rank = value.integer;
    if (constraint.on.column == kStep && integer)
      narrow(selection.steps, constraint.on.relation, value.integer);
    if (!text) continue;
    if (constraint.on.column == kMetric) selection.metric = std::string(value.text);
    if (constraint.on.column == kOp) selection.op = std::string(value.text);
    if (constraint.on.column == kTarget) (equal ? selection.target : selection.target_glob) = value.text;
  }
  return selection;
}

// Iterates over the databases, their metrics, partitions, rows and statistics.
class ValueCursor : public RowCursor {
 public:
  ValueCursor(std::shared_ptr<RankDatabases> databases, Selection selection)
      : databases_(std::move(databases)), selection_(std::move(selection)) {}

  tl::expected<bool, std::string> next() override {
    if (selection_.nothing) return false;
    for (;;) {
      if (next_value()) return true;
      if (next_row() || next_page() || next_partition()) continue;
      if (!next_database()) return false;
    }
  }

  SqliteValue value(int column) const override {
    const RankDatabase::Row& row = rows_[row_];
    switch (column) {
      case kRank:
        return SqliteValue::of(row.rank);
      case kStep:
        return SqliteValue::of(row.step);
      case kMetric:
        return SqliteValue::of(std::string_view(metric().name));
      case kTarget:
        return SqliteValue::of(std::string_view(target_->name));
      case kVppStage:
        return SqliteValue::of(target_->vpp_stage);
      case kMicroStep:
        return SqliteValue::of(target_->micro_step);
      case kOp:
        return SqliteValue::of(std::string_view(metric().stats[stat_]));
      default:
        return row.values[stat_] ? SqliteValue::of(*row.values[stat_]) : SqliteValue{};
    }
  }

  // A hash of the value's names. Contains no index of a metric or statistic, because a rank may add some
  // between two scans.
  std::int64_t row_id() const override {
    const RankDatabase::Row& row = rows_[row_];
    const std::array<std::int64_t, 6> name{
        static_cast<std::int64_t>(next_file_ - 1),
        metric().id,
        row.rank,
        row.step,
        row.target_id,
        static_cast<std::int64_t>(std::hash<std::string>{}(metric().stats[stat_]))};
    const std::string_view bytes(reinterpret_cast<const char*>(name.data()), sizeof name);
    return static_cast<std::int64_t>(std::hash<std::string_view>{}(bytes));
  }

 private:
  static constexpr std::size_t kBeforeFirst = std::numeric_limits<std::size_t>::max();

  const StoredMetric& metric() const { return database_->metrics()[metric_]; }

  // Moves to the next measured statistic of the row. A NaN is measured, too.
  bool next_value() {
    if (target_ == nullptr) return false;
    while (++stat_ < metric().stats.size()) {
      if (selection_.op && *selection_.op != metric().stats[stat_]) continue;
      const RankDatabase::Row& row = rows_[row_];
      if (row.values[stat_] || (row.nan_mask >> nan_bits_[stat_] & 1) != 0) return true;
    }
    target_ = nullptr;
    return false;
  }

  bool next_row() {
    if (database_ == nullptr) return false;
    while (++row_ < rows_.size()) {
      const auto target = database_->target(rows_[row_].target_id);
      if (!target) return give_up(target.error());
      if (*target == nullptr || !is_selected(rows_[row_].target_id, **target)) continue;
      target_ = *target;
      stat_ = kBeforeFirst;
      return true;
    }
    return false;
  }

  bool is_selected(std::int64_t id, const TargetName& target) {
    const auto known = selected_.find(id);
    if (known != selected_.end()) return known->second;
    const bool selected = (!selection_.target || *selection_.target == target.name) &&
                          (!selection_.target_glob || matches_glob(*selection_.target_glob, target.name));
    selected_.emplace(id, selected);
    return selected;
  }

  bool next_page() {
    if (database_ == nullptr || partition_ >= metric().partitions.size()) return false;
    const auto read =
        database_->read_page(metric(), metric().partitions[partition_], selection_.steps, place_, rows_);
    if (!read) return give_up(read.error());
    row_ = kBeforeFirst;
    return !rows_.empty();
  }

  bool next_partition() {
    if (database_ == nullptr) return false;
    for (;;) {
      const bool in_metric = metric_ < database_->metrics().size() &&
                             (!selection_.metric || *selection_.metric == metric().name);
      if (in_metric && ++partition_ < metric().partitions.size()) {
        const StepRange steps = steps_of(metric().partitions[partition_]);
        if (steps.last < selection_.steps.first || steps.first > selection_.steps.last) continue;
        place_ = {};
        return true;
      }
      if (metric_ + 1 >= database_->metrics().size()) return false;
      begin_metric(metric_ + 1);
    }
  }

  void begin_metric(std::size_t index) {
    metric_ = index;
    partition_ = kBeforeFirst;
    nan_bits_.clear();
    for (const std::string& stat : metric().stats) nan_bits_.push_back(nan_bit_of(stat));
  }

  bool next_database() {
    database_.reset();
    while (next_file_ < databases_->files().size()) {
      const RankFile& file = databases_->files()[next_file_++];
      if (selection_.rank && file.rank >= 0 && file.rank != *selection_.rank) continue;
      database_ = databases_->open(next_file_ - 1);
      if (database_ == nullptr || database_->metrics().empty()) continue;
      rows_.clear();
      row_ = kBeforeFirst;
      selected_.clear();
      begin_metric(0);
      partition_ = kBeforeFirst;
      if (next_partition()) return true;
    }
    database_.reset();
    return false;
  }

  bool give_up(const std::string& error) {
    databases_->fail(next_file_ - 1, error);
    database_.reset();
    rows_.clear();
    target_ = nullptr;
    return false;
  }

  // Constant after construction.
  const std::shared_ptr<RankDatabases> databases_;
  const Selection selection_;

  std::size_t next_file_ = 0;
  std::shared_ptr<RankDatabase> database_;
  std::size_t metric_ = 0;
  std::vector<int> nan_bits_;  // of the metric's statistics
  std::size_t partition_ = kBeforeFirst;
  RankDatabase::Place place_;
  std::vector<RankDatabase::Row> rows_;  // a page
  std::size_t row_ = kBeforeFirst;
  std::unordered_map<std::int64_t, bool> selected_;  // by target id
  const TargetName* target_ = nullptr;               // of the row; null: the row has no more values
  std::size_t stat_ = kBeforeFirst;
};

}  // namespace

std::string MetricValues::columns() const {
  return "rank INTEGER, step INTEGER, metric TEXT, target TEXT, vpp_stage INTEGER, micro_step INTEGER, op "
         "TEXT, "
         "value REAL";
}

bool MetricValues::uses(const ColumnConstraint& constraint) const {
  switch (constraint.column) {
    case kRank:
    case kMetric:
    case kOp:
      return constraint.relation == Relation::equal;
    case kStep:
      return constraint.relation != Relation::glob;
    case kTarget:
      return constraint.relation == Relation::equal || constraint.relation == Relation::glob;
    default:
      return false;
  }
}

std::unique_ptr<RowCursor> MetricValues::scan(const std::vector<BoundConstraint>& constraints) {
  return std::make_unique<ValueCursor>(databases_, selection_of(constraints));
}

}  // namespace gradmon
