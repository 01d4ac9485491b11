// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <charconv>
#include <cmath>
#include <exception>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/find_job.h"
#include "tools/gradmonctl/cli/json_rule.h"
#include "tools/gradmonctl/cli/listing.h"
#include "tools/gradmonctl/cli/printable.h"
#include "writers/sinks/csv_text.h"
#include "writers/sqlite/sqlite_database.h"

namespace gradmon {
namespace {

using Type = SqliteValue::Type;

// The shortest text that reads back the same: "0.25", "1e-09", "3.0".
std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[40];
  std::string shortest(text, std::to_chars(text, text + sizeof text, value).ptr);
  if (shortest.find_first_of(".e") == std::string::npos) shortest += ".0";
  return shortest;
}

std::string cell_text(const SqliteValue& value) {
  switch (value.type) {
    case Type::null:
      return "";
    case Type::integer:
      return std::to_string(value.integer);
    case Type::real:
      return number_text(value.real);
    case Type::text:
      return std::string(value.text);
  }
  return "";
}

std::string json_text(const SqliteValue& value) {
  const bool number = value.type == Type::integer || (value.type == Type::real && std::isfinite(value.real));
  if (value.type == Type::null) return "null";
  if (number) return cell_text(value);
  return OrderedJson(cell_text(value)).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::vector<std::string> titles_of(const SqliteStatement& statement) {
  std::vector<std::string> titles;
  for (int i = 0; i < statement.columns(); ++i) titles.push_back(statement.column_name(i));
  return titles;
}

// Calls `on_row` for each row until it returns false.
template <class OnRow>
tl::expected<void, std::string> each_row(SqliteStatement& statement, const OnRow& on_row) {
  for (;;) {
    const auto row = statement.step();
    if (!row) return tl::unexpected(row.error().text);
    if (!*row || !on_row()) return {};
  }
}

tl::expected<void, std::string> print_csv(SqliteStatement& statement, std::ostream& out) {
  std::string line;
  for (const std::string& title : titles_of(statement)) append_cell(line += line.empty() ? "" : ",", title);
  out << line << '\n';
  return each_row(statement, [&] {
    line.clear();
    for (int i = 0; i < statement.columns(); ++i) {
      if (i > 0) line += ',';
      append_cell(line, cell_text(statement.value(i)));
    }
    out << line << '\n';
    return out.good();
  });
}

tl::expected<void, std::string> print_json(SqliteStatement& statement, std::ostream& out) {
  std::vector<std::string> keys;
  for (const std::string& title : titles_of(statement))
    keys.push_back(json_text(SqliteValue::of(std::string_view(title))));
  const char* before = "[\n";
  auto done = each_row(statement, [&] {
    out << before;
    before = ",\n";
    for (int i = 0; i < statement.columns(); ++i)
      out << (i == 0 ? " {" : ", ") << keys[static_cast<std::size_t>(i)] << ": "
          << json_text(statement.value(i));
    out << '}';
    return out.good();
  });
  out << (*before == '[' ? "[" : "\n") << "]\n";
  return done;
}

tl::expected<void, std::string> print_table(SqliteStatement& statement, bool all, const Console& console) {
  using Align = TextTable::Align;
  std::optional<TextTable> table;
  std::size_t rows = 0;
  bool stopped = false;
  auto done = each_row(statement, [&] {
    stopped = rows == kMostTableRows;
    if (stopped) return false;
    std::vector<TextTable::Column> columns;
    std::vector<std::string> cells;
    for (int i = 0; i < statement.columns(); ++i) {
      const SqliteValue value = statement.value(i);
      if (!table)
        columns.push_back({statement.column_name(i), value.type == Type::text ? Align::left : Align::right});
      cells.push_back(cell_text(value));
    }
    if (!table) table.emplace(std::move(columns));
    table->add(cells);
    ++rows;
    return true;
  });
  if (!table) {
    std::vector<TextTable::Column> columns;
    for (const std::string& title : titles_of(statement)) columns.push_back({title, Align::left});
    table.emplace(std::move(columns));
  }
  Listing listing{"row"};
  table->fill(listing);
  console.out << fit_to_screen(all ? std::nullopt : console.screen, listing);
  if (stopped)
    return tl::unexpected("stopped after " + std::to_string(rows) +
                          " rows; use --format csv or json for more, or a narrower query");
  return done;
}

// Runs the statement and prints its rows to `console.out`: a table after the last row, the other formats row
// by row. Stops early if `console.out` fails. An error ends the output after the last whole row.
tl::expected<void, std::string> print_rows(SqliteStatement& statement, RowFormat format, bool all,
                                           const Console& console) {
  switch (format) {
    case RowFormat::table:
      return print_table(statement, all, console);
    case RowFormat::csv:
      return print_csv(statement, console.out);
    case RowFormat::json:
      return print_json(statement, console.out);
  }
  return {};
}

// Names the newest runs, chosen for lack of --run.
void report_newest_runs(const RankFiles& found, const Console& console) {
  for (const ChosenRun& run : found.runs) {
    if (run.known < 2) continue;
    console.err << "gradmonctl: showing run " << printable(run.run_id) << ", the newest of " << run.known
                << " in " << printable(run.output_dir.string()) << "; --run chooses another\n";
  }
}

int run_query(const QueryRequest& request, const Console& console) {
  std::vector<std::filesystem::path> places(request.places.begin(), request.places.end());
  if (places.empty()) places.emplace_back(output_directory({}));
  auto found = find_rank_files(places, request.run_id);
  if (!found) return report_error(found.error(), console);
  if (request.run_id.empty()) report_newest_runs(*found, console);
  const std::size_t files = found->files.size();
  const auto databases = std::make_shared<RankDatabases>(std::move(found->files));
  auto query = QueryDatabase::make(databases);
  if (!query) return report_error(query.error(), console);
  auto statement = request.sql.empty() ? query->prepare(request.filter) : query->prepare(request.sql);
  if (!statement) return report_error(statement.error(), console);
  const auto printed = print_rows(*statement, request.format, request.all, console);
  const std::vector<std::string> errors = databases->errors();
  for (const std::string& error : errors) report_error(error, console);
  if (!printed) return report_error(printed.error(), console);
  if (errors.empty()) return kExitDone;
  return errors.size() < files ? kExitPartial : kExitFailed;
}

}  // namespace

// The files may hold any bytes, and the library that prints JSON can throw.
int query_command(const QueryRequest& request, const Console& console) {
  try {
    return run_query(request, console);
  } catch (const std::exception& error) {
    return report_error(error.what(), console);
  }
}

namespace {

constexpr const char* kFormats[] = {"table", "csv", "json"};

class QuerySubcommand : public SubcommandFor<QueryRequest> {
 public:
  std::string usage() const override {
    return "query (\"SQL\" | --metric NAME ...) [RUN...] [--format table|csv|json]";
  }
  std::string summary() const override { return "Search the SQLite databases of all ranks"; }
  Arguments arguments() override {
    Argument format{"--format", &format_, "table (default), csv or json", "FORMAT"};
    format.choices = {std::begin(kFormats), std::end(kFormats)};
    QueryRequest& query = request();
    return {
        {"SQL", &query.sql, "a statement on v_metrics, v_nonfinite, v_layer_step or v_files"},
        {"RUN", &query.places,
         "output directories, run directories or database files\n(default: MONITOR_OUTPUT_DIR, else "
         "./monitor_output)"},
        {"--metric", &query.filter.metric, "instead of SQL: a kind of row, as grad_reduced", "NAME"},
        {"--target", &query.filter.target, "a pattern of target names with * and ?, as 'layers.3.*'", "GLOB"},
        {"--op", &query.filter.op, "a statistic, as norm", "NAME"},
        {"--steps", &steps_, "steps, as 100:200, 100:, :200 or 100", "RANGE"},
        {"--rank", &rank_, "one rank", "RANK"},
        {"--run", &query.run_id, "8 hex digits of a run's directories (default: the newest run)", "ID"},
        format,
        list_all(query.all)};
  }
  std::string complete() override {
    QueryRequest& query = request();
    const bool filtered = !query.filter.metric.empty() || !query.filter.target.empty() ||
                          !query.filter.op.empty() || !steps_.empty() || rank_.has_value();
    if (!filtered && query.sql.empty())
      return "expected \"SQL\" or --metric, --target, --op, --steps or --rank";
    if (filtered && !query.sql.empty())
      query.places.insert(query.places.begin(), std::exchange(query.sql, ""));
    if (!steps_.empty()) {
      const auto steps = parse_steps(steps_);
      if (!steps) return "--steps: " + steps.error();
      query.filter.steps = *steps;
    }
    if (rank_) query.filter.rank = *rank_;
    for (std::size_t i = 0; i < std::size(kFormats); ++i) {
      if (format_ == kFormats[i]) query.format = static_cast<RowFormat>(i);
    }
    return "";
  }
  int perform(const Console& console) override { return query_command(request(), console); }

 private:
  std::string steps_;
  std::string format_ = "table";
  std::optional<std::int64_t> rank_;
};

}  // namespace

std::unique_ptr<Subcommand> query_subcommand() { return std::make_unique<QuerySubcommand>(); }

}  // namespace gradmon
