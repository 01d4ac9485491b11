// SPDX-License-Identifier: Apache-2.0
// Writes 20 steps into the database or the CSV files of a directory, as the writer thread does, and prints
// "SENT WRITTEN LOST". Usage: failpoint-sink DIRECTORY sqlite|csv|resumed-csv
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "writers/queue/name_table.h"
#include "writers/queue/writer_thread.h"
#include "writers/sinks/csv_sink.h"
#include "writers/sinks/sqlite_sink.h"

namespace {

using namespace gradmon;

constexpr std::int64_t kFirstStep = 490;  // the tenth step begins a partition
constexpr std::int64_t kSteps = 20;

std::vector<Record> records_of(NameTable& names, std::int64_t step) {
  std::vector<Record> records;
  for (const Kind kind : {Kind::actv, Kind::grad_reduced}) {
    for (int i = 0; i < 60; ++i) {
      Record record;
      record.kind = kind;
      record.step = step;
      record.target = names.intern("layers." + std::to_string(i) + ".weight");
      record.values[static_cast<std::size_t>(Op::norm)] = static_cast<double>(step);
      record.mask = bit_of(Op::norm);
      records.push_back(record);
    }
  }
  return records;
}

std::unique_ptr<Sink> sink_of(const std::string& form, const std::filesystem::path& directory,
                              const std::shared_ptr<NameTable>& names) {
  const auto find_directory = [directory] { return directory; };
  if (form == "csv") return std::make_unique<CsvSink>(find_directory, names);
  if (form == "resumed-csv") return std::make_unique<CsvSink>(find_directory, names, Resume::yes);
  MetricsFile::Options options;
  options.directory = find_directory;
  options.busy_timeout = std::chrono::milliseconds(10);
  return std::make_unique<SqliteSink>(options, names, Rank{0});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto names = std::make_shared<NameTable>();
  Layout layout;
  layout.revision = Revision{1};
  layout.step_count_per_record = 7;  // four CSV files of a kind
  std::uint64_t sent = 0;
  RetryingSink::Outcome sum;
  {
    RetryingSink sink(sink_of(argv[2], argv[1], names), layout, Pauses{});
    RetryingSink::Time now{};
    for (std::int64_t step = kFirstStep; step < kFirstStep + kSteps; ++step) {
      const std::vector<Record> records = records_of(*names, step);
      now += std::chrono::hours(1);  // no pause is longer
      const auto outcome = sink.write(Step{step}, records, now);
      sink.flush();
      sent += records.size();
      sum.written += outcome.written;
      sum.lost += outcome.lost;
    }
  }
  std::cout << sent << ' ' << sum.written << ' ' << sum.lost << std::endl;
  return 0;
}
