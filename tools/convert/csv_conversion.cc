// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/csv_conversion.h"

#include <algorithm>
#include <ctime>
#include <system_error>
#include <utility>

#include "control/text/output_names.h"
#include "tools/analyse/rows/row.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostThreads = 128;  // msprobe's limit

bool is_none(const std::string& text) { return text.empty() || text == "None"; }

fs::path input_path_of(const ConversionRequest& request) {
  return request.monitor_path.empty() ? default_output_dir() : fs::path(request.monitor_path);
}

// The names in "actv,grad_reduced" or "['actv', 'grad_reduced']".
std::vector<std::string> names_in(const std::vector<std::string>& texts) {
  std::vector<std::string> names;
  for (const std::string& text : texts) {
    for (std::size_t at = 0; (at = text.find_first_not_of("[](), '\"", at)) != std::string::npos;) {
      const std::size_t end = std::min(text.find_first_of("[](), '\"", at), text.size());
      names.push_back(text.substr(at, end - at));
      at = end;
    }
  }
  return names;
}

// Without the kinds of histograms, which no CSV file contains.
std::string all_kinds() {
  std::string all;
  for (std::size_t kind = 0; kind < kRecordKinds; ++kind)
    all += (all.empty() ? "" : ", ") + std::string(kKindNames[kind]);
  return all;
}

tl::expected<std::vector<Kind>, std::string> kinds_of(const std::vector<std::string>& texts) {
  std::vector<Kind> kinds;
  for (const std::string& name : names_in(texts)) {
    if (name == "None") continue;
    const auto kind = kind_named(name);
    if (!kind || is_histogram(*kind))
      return tl::unexpected("--data-type-list: found \"" + name + "\"; expected " + all_kinds());
    kinds.push_back(*kind);
  }
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  return kinds;
}

tl::expected<std::optional<std::int64_t>, std::string> time_of(const char* option, const std::string& text) {
  if (is_none(text)) return std::nullopt;
  const auto time = seconds_in_year(text);
  if (!time)
    return tl::unexpected(
        std::string(option) + ": found \"" + text +
        "\"; expected a time as in the names of directories, such as Dec03_21-34-40, or None");
  return time;
}

// The error names the wrong option, the found and the expected value.
tl::expected<InputChoice, std::string> input_choice_of(const ConversionRequest& request) {
  InputChoice choice;
  choice.path = input_path_of(request);
  const auto from = time_of("--time-start", request.time_start);
  if (!from) return tl::unexpected(from.error());
  const auto to = time_of("--time-end", request.time_end);
  if (!to) return tl::unexpected(to.error());
  if (*from && *to && **from > **to)
    return tl::unexpected("--time-start " + request.time_start + " is later than --time-end " +
                          request.time_end + "; expected a time before it");
  auto kinds = kinds_of(request.data_types);
  if (!kinds) return tl::unexpected(kinds.error());
  choice.from = *from;
  choice.to = *to;
  choice.kinds = std::move(*kinds);
  return choice;
}

// The conversion of the tasks, still without target and write().
Conversion conversion_of(const InputChoice& input, const std::vector<RankInput>& ranks,
                         const ConversionTasks& tasks) {
  Conversion conversion;
  conversion.input = input.path.string();
  for (const RankInput& rank : ranks) conversion.ranks.push_back(rank.rank);
  conversion.bytes = tasks.bytes;
  return conversion;
}

}  // namespace

fs::path output_directory_of(const ConversionRequest& request, const std::string& name, Place place) {
  if (!is_none(request.output)) return request.output;
  const fs::path input = input_path_of(request);
  std::error_code ignored;
  fs::path directory = fs::is_directory(input, ignored) ? input : input.parent_path();
  if (place == Place::beside) {
    directory = fs::absolute(fs::path(directory.empty() ? "." : directory) / "", ignored);
    directory = directory.lexically_normal().parent_path();
    if (parse_rank_directory(directory.filename().string())) directory = directory.parent_path();
    directory = directory.parent_path();
    if (directory == fs::current_path(ignored)) directory.clear();
  }
  return directory / (format_time_stamp(std::time(nullptr)) + "_" + name);
}

Arguments CsvConversion::arguments() {
  Argument threads{"--process-num,--process_num", &request().process_num,
                   "so many threads read and convert at a time (default: 1)", "N"};
  threads.least = 1;
  threads.most = kMostThreads;
  return {{"RUN,--monitor-path,--monitor_path", &request().monitor_path,
           "the job's output directory, one rank's directory in it, or a\n"
           "run-ID.json (default: MONITOR_OUTPUT_DIR, else ./monitor_output);\n"
           "also, as in msprobe: --monitor-path RUN",
           "RUN"},
          {"--time-start,--time_start", &request().time_start,
           "the earliest time in the name of a directory, such as\nDec03_21-34-40 (default: None, no limit)",
           "TIME"},
          {"--time-end,--time_end", &request().time_end, "the latest time (default: None, no limit)", "TIME"},
          threads,
          {"--data-type-list,--data_type_list,--data-type,--data_type", &request().data_types,
           "prefixes of files, such as actv grad_reduced (default: all)", "NAME..."},
          {"--output-dirpath,--output_dirpath,--output-dir,--output_dir", &request().output,
           "where the output goes (default: a new directory, see below)", "DIR"}};
}

std::string CsvConversion::complete() {
  auto input = input_choice_of(request());
  if (!input) return input.error();
  input_ = std::move(*input);
  return "";
}

int CsvConversion::perform(const Console& console) {
  Problems problems;
  const auto ranks = chosen_directories(input_, problems);
  if (!ranks) return report_error(ranks.error(), console);
  const ConversionTasks tasks = conversion_tasks(*ranks, input_.kinds, problems);
  Conversion conversion = conversion_of(input_, *ranks, tasks);
  if (const auto chosen = choose_output(tasks, conversion); !chosen)
    return report_error(chosen.error(), console);
  return run_conversion(conversion, problems, console);
}

}  // namespace gradmon
