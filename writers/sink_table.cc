// SPDX-License-Identifier: Apache-2.0
#include "writers/sink_table.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "control/text/output_names.h"
#include "writers/sinks/csv_sink.h"
#include "writers/sinks/event_files.h"
#include "writers/sinks/sqlite_sink.h"
#include "writers/sinks/tensorboard_sink.h"

namespace gradmon {
namespace {

struct Format {
  const char* name;
  std::unique_ptr<Sink> (*make)(const SinkContext& context);
};

constexpr std::array kFormats{
    Format{"csv",
           [](const SinkContext& context) -> std::unique_ptr<Sink> {
             return std::make_unique<CsvSink>(context.directory, context.names, context.resume);
           }},
    Format{"tensorboard",
           [](const SinkContext& context) -> std::unique_ptr<Sink> {
             return std::make_unique<TensorBoardSink>(
                 TensorBoardSink::Settings{context.directory, context.names, context.rank, context.config,
                                           EventFiles::kBytesOfAFile, context.resume});
           }},
    Format{"api",
           [](const SinkContext& context) -> std::unique_ptr<Sink> {
             return std::make_unique<MemorySink>(context.last_step, context.implied);
           }},
    Format{"sqlite",
           [](const SinkContext& context) -> std::unique_ptr<Sink> {
             return std::make_unique<SqliteSink>(MetricsFile::Options{context.directory}, context.names,
                                                 context.rank, context.resume, context.scopes);
           }},
};

const Format* find(std::string_view name) {
  const auto found = std::find_if(kFormats.begin(), kFormats.end(),
                                  [name](const Format& format) { return format.name == name; });
  return found == kFormats.end() ? nullptr : &*found;
}

constexpr std::size_t kMostOtherRanks = 4;

tl::expected<SamplesByStep, std::string> find_own_samples(const std::filesystem::path& directory, Step from) {
  SamplesByStep samples;
  for (auto found :
       {CsvSink::find_samples(directory, from.value), SqliteSink::find_samples(directory, from.value),
        find_samples_in_events(directory / "tensorboard", from.value)}) {
    if (!found) return found;
    samples.merge(*found);
  }
  return samples;
}

// The other rank directories of the same run, lowest ranks first.
std::vector<std::filesystem::path> list_other_ranks(const std::filesystem::path& directory) {
  const auto own = parse_rank_directory(directory.filename().string());
  std::vector<std::pair<int, std::filesystem::path>> found;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(directory.parent_path(), ignored), end; own && entry != end;
       entry.increment(ignored)) {
    const auto other = parse_rank_directory(entry->path().filename().string());
    if (other && other->time == own->time && other->id == own->id && other->rank != own->rank)
      found.emplace_back(other->rank, entry->path());
  }
  std::sort(found.begin(), found.end());
  found.resize(std::min(found.size(), kMostOtherRanks));
  std::vector<std::filesystem::path> paths;
  for (auto& [rank, path] : found) paths.push_back(std::move(path));
  return paths;
}

}  // namespace

tl::expected<SamplesByStep, std::string> find_samples(const std::filesystem::path& directory, Step from) {
  auto samples = find_own_samples(directory, from);
  if (!samples || !samples->empty()) return samples;
  for (const std::filesystem::path& other : list_other_ranks(directory)) {
    samples = find_own_samples(other, from);
    if (samples && !samples->empty()) return samples;
  }
  return SamplesByStep{};
}

std::unique_ptr<Sink> make_sink(std::string_view format, const SinkContext& context) {
  const Format* found = find(format);
  return found == nullptr ? nullptr : found->make(context);
}

}  // namespace gradmon
