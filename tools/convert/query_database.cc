// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/query_database.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "control/text/output_names.h"
#include "writers/sinks/metrics_schema.h"
#include "writers/sqlite/sqlite_database.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

// Rank −1 if the name does not end like gradmon's run directories: users put words before it.
RankFile named(const fs::path& directory) {
  RankFile file{directory / kMetricsFileName, -1, ""};
  const std::string whole = directory.filename().string();
  const std::size_t rank = whole.rfind("-rank");
  if (rank == std::string::npos || rank < kTimeStampLength) return file;
  const auto name = parse_rank_directory(std::string_view(whole).substr(rank - kTimeStampLength));
  if (!name || !is_run_id(name->id)) return file;
  file.rank = name->rank;
  file.run_id = name->id;
  return file;
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// The databases in the directories below an output directory.
std::vector<RankFile> files_below(const fs::path& output_dir, std::error_code& error) {
  std::vector<RankFile> files;
  for (fs::directory_iterator entry(output_dir, error), end; !error && entry != end; entry.increment(error)) {
    RankFile file = named(entry->path());
    if (file.rank >= 0 && is_file(file.path)) files.push_back(std::move(file));
  }
  return files;
}

// The ids of runs, sorted by last write, the newest first.
std::vector<std::string> runs_of(const std::vector<RankFile>& files) {
  std::map<std::string, fs::file_time_type> times;
  for (const RankFile& file : files) {
    std::error_code error;
    const auto time = fs::last_write_time(file.path, error);
    const auto of_log = fs::last_write_time(file.path.string() + "-wal", error);
    auto& newest = times.try_emplace(file.run_id, time).first->second;
    newest = std::max(newest, error ? time : std::max(time, of_log));
  }
  std::vector<std::string> runs;
  for (const auto& [run, time] : times) runs.push_back(run);
  std::stable_sort(runs.begin(), runs.end(),
                   [&](const auto& a, const auto& b) { return times[a] > times[b]; });
  return runs;
}

tl::expected<void, std::string> add_output_dir(RankFiles& all, const fs::path& place,
                                               const std::string& run_id) {
  std::error_code error;
  const std::vector<RankFile> files = files_below(place, error);
  if (error) return tl::unexpected(place.string() + ": " + error.message());
  if (files.empty())
    return tl::unexpected(
        place.string() + ": found no " + kMetricsFileName +
        " here or in a directory such as Nov24_08-30-12-rank0-8c0ffee0; expected the output "
        "directory of a job with \"format\": \"sqlite\"");
  const std::vector<std::string> runs = runs_of(files);
  const std::string chosen = run_id.empty() ? runs.front() : run_id;
  if (std::find(runs.begin(), runs.end(), chosen) == runs.end()) {
    std::string known;
    for (const std::string& run : runs) known += (known.empty() ? "" : ", ") + run;
    return tl::unexpected(place.string() + ": found no run " + chosen + "; expected one of " + known);
  }
  for (const RankFile& file : files) {
    if (file.run_id == chosen) all.files.push_back(file);
  }
  all.runs.push_back({place, chosen, runs.size()});
  return {};
}

}  // namespace

tl::expected<RankFiles, std::string> find_rank_files(const std::vector<fs::path>& places,
                                                     const std::string& run_id) {
  RankFiles all;
  for (const fs::path& place : places) {
    std::error_code error;
    const fs::file_status status = fs::status(place, error);
    if (!fs::exists(status)) return tl::unexpected(place.string() + ": No such file or directory");
    const fs::path plain = fs::absolute(place, error).lexically_normal();
    const fs::path directory = plain.has_filename() ? plain : plain.parent_path();
    if (!fs::is_directory(status)) {
      RankFile file = named(directory.parent_path());
      file.path = place;
      all.files.push_back(std::move(file));
    } else if (is_file(place / kMetricsFileName)) {
      RankFile file = named(directory);
      file.path = place / kMetricsFileName;
      all.files.push_back(std::move(file));
    } else if (auto added = add_output_dir(all, place, run_id); !added) {
      return tl::unexpected(added.error());
    }
  }
  std::stable_sort(all.files.begin(), all.files.end(), [](const RankFile& a, const RankFile& b) {
    return std::tie(a.rank, a.path) < std::tie(b.rank, b.path);
  });
  return all;
}

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

  bool is_selected(std::int64_t id, const StoredTarget& target) {
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
  const StoredTarget* target_ = nullptr;             // of the row; null: the row has no more values
  std::size_t stat_ = kBeforeFirst;
};

// The table v_metrics over the databases of all ranks: one row for each value. It opens each database when it
// reads it, so their number is unlimited.
class MetricValues : public VirtualTable {
 public:
  explicit MetricValues(std::shared_ptr<RankDatabases> databases) : databases_(std::move(databases)) {}

  std::string columns() const override;
  bool uses(const ColumnConstraint& constraint) const override;
  std::unique_ptr<RowCursor> scan(const std::vector<BoundConstraint>& constraints) override;

 private:
  const std::shared_ptr<RankDatabases> databases_;
};

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

constexpr const char* kQueryTables =
    "v_metrics (rank, step, metric, target, vpp_stage, micro_step, op, value), v_nonfinite, v_layer_step, "
    "v_files (rank, run_id, path)";

SqliteResult<void> add_files(SqliteDatabase& database, const std::vector<RankFile>& files) {
  if (auto made = database.run("CREATE TABLE v_files (rank INTEGER, run_id TEXT, path TEXT)"); !made)
    return made;
  auto insert = database.prepare("INSERT INTO v_files VALUES (?, ?, ?)");
  if (!insert) return tl::unexpected(insert.error());
  for (const RankFile& file : files) {
    const std::string path = file.path.string();
    file.rank < 0 ? insert->bind_null(0) : insert->bind(0, std::int64_t{file.rank});
    insert->bind(1, std::string_view(file.run_id));
    insert->bind(2, std::string_view(path));
    if (auto added = insert->run(); !added) return added;
  }
  return {};
}

SqliteResult<void> add_tables(SqliteDatabase& database, const std::shared_ptr<RankDatabases>& databases) {
  if (auto added = add_table(database, "v_metrics", std::make_unique<MetricValues>(databases)); !added)
    return added;
  if (auto added = add_function(database, "layer_of", layer_of); !added) return added;
  for (const MetricsView& view :
       derived_views("(SELECT *, layer_of(target) AS layer FROM v_metrics) WHERE layer <> ''")) {
    if (auto added = database.run("CREATE VIEW " + view.name + " AS " + view.select); !added) return added;
  }
  if (auto added = add_files(database, databases->files()); !added) return added;
  // The query must not reach other files.
  database.forbid_attaching();
  return database.run("PRAGMA query_only = ON");
}

// Translates a pattern with * and ? into one of GLOB, in which "[" begins a class of characters.
std::string glob_of(const std::string& pattern) {
  std::string glob;
  for (const char c : pattern) glob += c == '[' ? std::string("[[]") : std::string(1, c);
  return glob;
}

bool parse_step(std::string_view text, std::int64_t& step) {
  if (text.empty()) return true;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), step);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && step >= 0;
}

}  // namespace

std::shared_ptr<RankDatabase> RankDatabases::open(std::size_t index) {
  if (!errors_[index].empty()) return nullptr;
  if (open_[index]) return open_[index];
  if (opened_ >= kMostOpen) {
    for (auto& database : open_) database.reset();
    opened_ = 0;
  }
  auto made = RankDatabase::open(files_[index].path);
  if (!made) {
    fail(index, made.error());
    return nullptr;
  }
  open_[index] = std::make_shared<RankDatabase>(std::move(*made));
  ++opened_;
  return open_[index];
}

void RankDatabases::fail(std::size_t index, std::string error) {
  errors_[index] = std::move(error);
  open_[index].reset();
}

std::vector<std::string> RankDatabases::errors() const {
  std::vector<std::string> all;
  std::copy_if(errors_.begin(), errors_.end(), std::back_inserter(all),
               [](const std::string& error) { return !error.empty(); });
  return all;
}

tl::expected<StepRange, std::string> parse_steps(const std::string& text) {
  StepRange steps;
  const std::string_view all = text;
  const std::size_t colon = all.find(':');
  const bool valid = colon == std::string_view::npos ? !all.empty() && parse_step(all, steps.first)
                                                     : parse_step(all.substr(0, colon), steps.first) &&
                                                           parse_step(all.substr(colon + 1), steps.last);
  if (colon == std::string_view::npos) steps.last = steps.first;
  if (!valid || steps.first > steps.last)
    return tl::unexpected("found \"" + text + "\", expected steps such as 100:200, 100:, :200 or 100");
  return steps;
}

tl::expected<QueryDatabase, std::string> QueryDatabase::make(std::shared_ptr<RankDatabases> databases) {
  QueryDatabase made;
  auto database = SqliteDatabase::open("", SqliteDatabase::Access::in_memory);
  if (!database) return tl::unexpected(database.error().text);
  made.database_ = std::move(*database);
  if (auto added = add_tables(made.database_, databases); !added) return tl::unexpected(added.error().text);
  return made;
}

tl::expected<SqliteStatement, std::string> QueryDatabase::prepare(const std::string& sql) {
  std::string rest;
  auto statement = database_.prepare(sql, &rest);
  if (!statement) return tl::unexpected(statement.error().text + "; the tables are " + kQueryTables);
  if (!statement->prepared())
    return tl::unexpected("found no SQL statement; the tables are " + std::string(kQueryTables));
  if (rest.find_first_not_of(" \t\r\n;") != std::string::npos)
    return tl::unexpected("expected one SQL statement; found more: " + rest);
  if (statement->columns() == 0)
    return tl::unexpected(std::string("expected an SQL statement that reads, such as SELECT"));
  return std::move(*statement);
}

tl::expected<SqliteStatement, std::string> QueryDatabase::prepare(const ValueFilter& filter) {
  std::string sql =
      "SELECT rank, step, metric, target, vpp_stage, micro_step, op, ifnull(value, 'nan') AS value FROM "
      "v_metrics "
      "WHERE step >= " +
      std::to_string(filter.steps.first) + " AND step <= " + std::to_string(filter.steps.last);
  if (!filter.metric.empty()) sql += " AND metric = " + sql_text(filter.metric);
  if (!filter.target.empty()) sql += " AND target GLOB " + sql_text(glob_of(filter.target));
  if (!filter.op.empty()) sql += " AND op = " + sql_text(filter.op);
  if (filter.rank >= 0) sql += " AND rank = " + std::to_string(filter.rank);
  return prepare(sql);
}

}  // namespace gradmon
