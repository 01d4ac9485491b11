// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/start_writer.h"

#include <limits>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "tools/analyse/rows/row.h"
#include "tools/convert/input_choice.h"
#include "tools/convert/rank_rows.h"
#include "tools/convert/row_records.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record.h"
#include "writers/queue/sink.h"

namespace gradmon {
namespace {

// Makes records from the rows of one metric in a database of a rank, which must outlive it. One thread.
class StoredRecords {
 public:
  // `names` receives the names and shapes. The error: the metric has a property unknown to this version, or
  // the database cannot be read.
  static tl::expected<StoredRecords, std::string> make(RankDatabase& from, const StoredMetric& metric,
                                                       std::int64_t rank, std::shared_ptr<NameTable> names);

  Kind kind() const { return kind_; }
  // Has all statistics of the metric.
  const Layout& layout() const { return layout_; }

  // Returns nullopt if the database does not know the row's target.
  tl::expected<std::optional<Record>, std::string> record_of(RankDatabase& from,
                                                             const RankDatabase::Row& row);

 private:
  // A statistic of the metric.
  struct Stat {
    std::uint8_t value;  // index into Record::values
    int nan_bit;
  };
  // The tensor of a target in the steps from the first to the last.
  struct Tensor {
    std::int64_t first_step = 0;
    std::int64_t last_step = -1;
    std::uint32_t shape = 0;
    DType dtype = DType::unknown;
  };

  tl::expected<Tensor, std::string> tensor_of(const RankDatabase::Row& row);

  Kind kind_ = Kind::other;
  Layout layout_;
  std::vector<Stat> stats_;
  std::shared_ptr<NameTable> names_;
  TensorNotes notes_;
  std::unordered_map<std::int64_t, Tensor> tensors_;  // the last one of each target, by its id
};

std::optional<Kind> kind_of(const StoredMetric& metric) {
  const auto kind = kind_named(metric.name);
  return kind && metric.id == metric_id_of(*kind) ? kind : std::nullopt;
}

Layout layout_of(const StoredMetric& metric) {
  Layout layout;
  layout.ops.clear();
  for (std::size_t op = 0; op < kOps; ++op) {
    const std::string name = name_of(static_cast<Op>(op));
    if (std::count(metric.stats.begin(), metric.stats.end(), name) > 0)
      layout.ops.push_back(static_cast<Op>(op));
  }
  layout.micro_step_in_grad_unreduced = true;  // 0 if the rows have none
  return layout;
}

tl::expected<StoredRecords, std::string> StoredRecords::make(RankDatabase& from, const StoredMetric& metric,
                                                             std::int64_t rank,
                                                             std::shared_ptr<NameTable> names) {
  const auto kind = kind_of(metric);
  if (!kind)
    return tl::unexpected("found the metric \"" + metric.name + "\" with the id " +
                          std::to_string(metric.id) + "; expected one that this version of gradmon knows");
  StoredRecords made;
  made.kind_ = *kind;
  made.layout_ = layout_of(metric);
  made.names_ = std::move(names);
  const std::vector<MetricStat> known = metric_stats_of(*kind, made.layout_);
  for (const std::string& stat : metric.stats) {
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const MetricStat& one) { return stat == one.name; });
    if (found == known.end())
      return tl::unexpected("found the statistic \"" + stat + "\" of " + metric.name +
                            "; expected one that this version of gradmon knows");
    made.stats_.push_back({found->value, found->nan_bit});
  }
  auto notes = from.tensors(metric.id, rank);
  if (!notes) return tl::unexpected(notes.error());
  made.notes_ = std::move(*notes);
  return made;
}

tl::expected<StoredRecords::Tensor, std::string> StoredRecords::tensor_of(const RankDatabase::Row& row) {
  Tensor& known = tensors_[row.target_id];
  if (known.first_step <= row.step && row.step <= known.last_step) return known;
  const auto note = notes_.at(row.target_id, row.step);
  if (!note) return tl::unexpected(note.error());
  known = {note->first_step, note->last_step, names_->intern_shape(note->shape), dtype_named(note->dtype)};
  return known;
}

tl::expected<std::optional<Record>, std::string> StoredRecords::record_of(RankDatabase& from,
                                                                          const RankDatabase::Row& row) {
  const auto target = from.target(row.target_id);
  if (!target) return tl::unexpected(target.error());
  if (*target == nullptr) return std::nullopt;
  const auto small = [](std::int64_t value) {
    return static_cast<int>(std::clamp<std::int64_t>(value, 0, std::numeric_limits<int>::max()));
  };
  Record record;
  record.kind = kind_;
  record.step = row.step;
  record.target = names_->intern((*target)->name, small((*target)->vpp_stage));
  record.micro_step = small((*target)->micro_step);
  for (std::size_t i = 0; i < stats_.size(); ++i) {
    const bool is_nan = (row.nan_mask >> stats_[i].nan_bit & 1) != 0;
    if (!row.values[i] && !is_nan) continue;
    record.values[stats_[i].value] = row.values[i].value_or(std::numeric_limits<double>::quiet_NaN());
    record.mask = static_cast<ValueMask>(record.mask | 1U << stats_[i].value);
  }
  const auto tensor = tensor_of(row);
  if (!tensor) return tl::unexpected(tensor.error());
  record.shape = tensor->shape;
  record.dtype = tensor->dtype;
  return record;
}

namespace fs = std::filesystem;

constexpr std::size_t kRecordsOfAPart = 4096;

}  // namespace

StartWriter::StartWriter(int rank, std::shared_ptr<NameTable> names, std::shared_ptr<const ScopeTable> scopes,
                         const StepsOfKinds& taken, NewDatabase& database, ConversionMeter& meter,
                         Problems& problems)
    : rank_(rank),
      taken_(taken),
      database_(database),
      meter_(meter),
      problems_(problems),
      names_(std::move(names)),
      writer_(names_, Rank{rank}, std::move(scopes)) {}

tl::expected<void, std::string> StartWriter::write(const fs::path& directory) {
  const auto all = [&]() -> SqliteResult<void> {
    if (auto prepared = writer_.prepare(database_.database()); !prepared) return prepared;
    if (auto written = write_database(directory / kMetricsFileName); !written) return written;
    return write_files(directory);
  }();
  if (!all) return tl::unexpected(database_.describe(all.error()));
  return {};
}

SqliteResult<void> StartWriter::write_database(const fs::path& file) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return {};
  auto from = RankDatabase::open(file);
  if (!from) {
    problems_.add(file, 0, from.error() + "; the database is left out");
    return {};
  }
  std::uint64_t partitions = 0;
  for (const StoredMetric& metric : from->metrics()) partitions += metric.partitions.size();
  const std::uint64_t size = fs::file_size(file, ignored);
  const std::uint64_t bytes_of_partition = ignored || partitions == 0 ? 0 : size / partitions;
  for (const StoredMetric& metric : from->metrics()) {
    if (auto written = write_metric(*from, metric, bytes_of_partition); !written) return written;
  }
  return {};
}

SqliteResult<void> StartWriter::write_metric(RankDatabase& from, const StoredMetric& metric,
                                             std::uint64_t bytes_of_partition) {
  auto stored = StoredRecords::make(from, metric, rank_, names_);
  if (!stored) {
    problems_.add(from.path(), 0, stored.error() + "; the metric is left out");
    return {};
  }
  writer_.begin_revision(stored->layout());
  for (const std::string& partition : metric.partitions) {
    RankDatabase::Place place;
    for (std::vector<RankDatabase::Row> rows; !meter_.stop;) {
      const auto page = from.read_page(metric, partition, {}, place, rows);
      if (!page) {
        problems_.add(from.path(), 0, page.error() + "; the rest of " + partition + " is left out");
        break;
      }
      if (rows.empty()) break;
      std::vector<Record> records;
      for (const RankDatabase::Row& row : rows) {
        const auto record = stored->record_of(from, row);
        const bool good = row.rank == rank_ && row.step >= 0 && record && *record && (*record)->mask != 0;
        if (good) records.push_back(**record);
        if (!record)
          problems_.add(from.path(), 0, record.error() + "; a row of " + partition + " is left out");
        if (record && !good)
          problems_.add(from.path(), 0, "a row of " + partition + " without rank, target or value");
      }
      if (auto written = write_records(stored->kind(), records); !written) return written;
    }
    meter_.bytes += bytes_of_partition;
  }
  return {};
}

SqliteResult<void> StartWriter::write_files(const fs::path& directory) {
  const RankInput input{rank_, {directory}};
  for (const auto& [kind, files] : chosen_files(input, {}, problems_)) {
    ConversionMeter of_files;
    RankRows rows(files, of_files, problems_);
    RowRecords records(kind, names_);
    std::vector<Record> part;
    const auto flush = [&, kind = kind] {  // C++17: a structured binding can only be captured by copying it
      auto written = write_records(kind, part);
      part.clear();
      return written;
    };
    writer_.begin_revision(records.layout());
    for (const Row* row = rows.next(); row != nullptr && !meter_.stop; row = rows.next()) {
      if (records.extend_layout(*row)) {
        if (auto written = flush(); !written) return written;
        writer_.begin_revision(records.layout());
      }
      part.push_back(records.record_of(rows, *row));
      if (part.size() < kRecordsOfAPart) continue;
      if (auto written = flush(); !written) return written;
    }
    if (auto written = flush(); !written) return written;
    meter_.bytes += of_files.bytes;
  }
  return {};
}

SqliteResult<void> StartWriter::write_records(Kind kind, const std::vector<Record>& records) {
  const auto index = static_cast<std::size_t>(kind);
  for (auto begin = records.begin(); begin != records.end();) {
    const std::int64_t step = begin->step;
    const auto end =
        std::find_if(begin, records.end(), [&](const Record& record) { return record.step != step; });
    of_step_.assign(begin, end);
    begin = end;
    if (taken_[index].count(step) > 0) {
      meter_.repeated += of_step_.size();
      continue;
    }
    const auto written =
        writer_.write(database_.database(), Step{step}, of_step_, false, [](Kind) { return true; });
    if (!written) return tl::unexpected(written.error());
    steps_[index].insert(step);
    meter_.rows += *written;
    extent_.add({*written, step, step});
  }
  return {};
}

}  // namespace gradmon
