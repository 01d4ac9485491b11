// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/merge/start_writer.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "tools/convert/database/row_records.h"
#include "tools/convert/input/input_choice.h"
#include "tools/convert/input/rank_rows.h"
#include "tools/convert/merge/stored_records.h"

namespace gradmon {
namespace {

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
    const auto flush = [&, kind = kind] {  // C++17: a structured binding is captured by a copy only
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
