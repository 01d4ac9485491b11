// SPDX-License-Identifier: Apache-2.0
// The same records through the CSV sink and the SQLite sink.
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <sstream>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/sinks/sqlite/metrics_database.h"
#include "writers/sinks/columns.h"
#include "writers/sinks/csv/csv_sink.h"
#include "writers/sinks/number_format.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

namespace {

constexpr int kNdigits = 9;

double random_value(std::mt19937_64& random) {
  switch (random() % 12) {
    case 0:
      return std::nan("");
    case 1:
      return std::numeric_limits<double>::infinity();
    case 2:
      return 0;
    default:
      return std::normal_distribution<double>(0,
                                              std::pow(10.0, static_cast<double>(random() % 13) - 6))(random);
  }
}

// Records of every kind with random values, of which some are missing.
std::vector<Record> random_records(std::int64_t step, NameTable& names, const Layout& layout) {
  std::mt19937_64 random(static_cast<std::uint64_t>(step));
  std::vector<Record> records;
  for (std::size_t kind = 0; kind < kRecordKinds; ++kind) {
    for (std::uint32_t i = 0; i < 20; ++i) {
      Record record;
      record.kind = static_cast<Kind>(kind);
      record.step = step;
      record.sequence = i;
      record.target = names.intern("module." + std::to_string(i), static_cast<int>(i % 3));
      record.micro_step = static_cast<std::int32_t>(random() % 4);
      for (const RowColumn& column : columns_of(record.kind, layout)) {
        const bool number = column.source == RowColumn::Source::number;
        if ((!number && column.source != RowColumn::Source::count) || random() % 8 == 0) continue;
        record.values[column.value] = number ? random_value(random) : static_cast<double>(random() % 1000);
        record.mask = static_cast<ValueMask>(record.mask | 1U << column.value);
      }
      records.push_back(record);
    }
  }
  return records;
}

// A line of CSV with no quoted cells.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

// "kind|name|vpp_stage|micro_step|op" to the number as CSV prints it.
using Values = std::map<std::string, std::string>;

void read_csv(const std::filesystem::path& file, const std::string& kind, Values& values) {
  std::istringstream lines(read_text(file));
  std::string line;
  REQUIRE(std::getline(lines, line));
  const std::vector<std::string> titles = cells_of(line);
  while (std::getline(lines, line)) {
    const std::vector<std::string> cells = cells_of(line);
    std::map<std::string, std::string> row;
    for (std::size_t i = 0; i < cells.size(); ++i) row[titles[i]] = cells[i];
    // A scalar's stage is not in its file.
    const std::string place = kind + "|" + row["name"] + "|" +
                              (row.count("vpp_stage") ? row["vpp_stage"] : "-") + "|" +
                              (row.count("micro_step") ? row["micro_step"] : "0") + "|";
    for (const std::string& title : titles) {
      if (title == "name" || title == "vpp_stage" || title == "micro_step" || title == "step" ||
          title == "shape" || title == "dtype" || row[title].empty())
        continue;
      values[place + title] = row[title];
    }
  }
}

std::string as_csv_prints(const std::string& op, const std::string& number) {
  std::string text;
  const double value = number.empty() ? std::nan("") : std::stod(number);
  op == "nans" || op == "samples" ? append_count(text, value) : append_number(text, value, kNdigits);
  return text;
}

}  // namespace

TEST_CASE("the database and the CSV files of the same records have the same numbers") {
  const TemporaryDirectory scratch;
  auto names = std::make_shared<NameTable>();
  Layout layout = layout_with({Op::norm, Op::min, Op::max, Op::mean, Op::nans, Op::zeros, Op::absmax});
  layout.ndigits = kNdigits;
  layout.micro_step_in_grad_unreduced = true;
  CsvSink csv([&] { return scratch.path(); }, names);
  SqliteSink sqlite(file_options(scratch.path()), names, Rank{3});
  REQUIRE(csv.begin_revision(layout));
  REQUIRE(sqlite.begin_revision(layout));
  std::size_t compared = 0;
  for (std::int64_t step = 490; step < 510; ++step) {
    const auto records = random_records(step, *names, layout);
    REQUIRE(csv.write_step(Step{step}, records));
    REQUIRE(sqlite.write_step(Step{step}, records));
    Values of_csv;
    const std::string range = "_" + std::to_string(step) + "-" + std::to_string(step) + ".csv";
    for (std::size_t kind = 0; kind < kRecordKinds; ++kind)
      read_csv(scratch.path() / (kKindNames[kind] + range), kKindNames[kind], of_csv);
    Values of_sqlite;
    for (const std::string& row : query_rows(
             scratch.path() / kMetricsFileName,
             "SELECT metric || '|' || target || '|' || CASE metric WHEN 'scalar' THEN '-' ELSE vpp_stage "
             "END || '|' || micro_step || '|' || op, op, value FROM v_metrics WHERE step = " +
                 std::to_string(step))) {
      const std::size_t last = row.rfind('|');
      const std::size_t before = row.rfind('|', last - 1);
      of_sqlite[row.substr(0, before)] =
          as_csv_prints(row.substr(before + 1, last - before - 1), row.substr(last + 1));
    }
    CHECK(of_sqlite == of_csv);
    compared += of_csv.size();
  }
  CHECK(compared > 10'000);
}

TEST_CASE("several hundred thousand rows arrive whole") {
  const TemporaryDirectory scratch;
  auto names = std::make_shared<NameTable>();
  SqliteSink sink(file_options(scratch.path()), names, Rank{3});
  REQUIRE(sink.begin_revision(layout_with({Op::norm})));
  for (std::int64_t step = 0; step < 800; ++step)
    REQUIRE(sink.write_step(Step{step}, norm_records(*names, step, 500)));
  const auto path = scratch.path() / kMetricsFileName;
  CHECK(query_rows(path, "SELECT count(*), count(DISTINCT step), sum(value) FROM v_metrics") ==
        TextRows{"400000|800|159899800000.0"});
  CHECK(integrity_error(path) == "");
}
