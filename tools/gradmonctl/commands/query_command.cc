// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/query_command.h"

#include <exception>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "tools/gradmonctl/ask/find_job.h"
#include "tools/gradmonctl/parse/subcommand.h"
#include "tools/gradmonctl/show/printable.h"

namespace gradmon {
namespace {

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
