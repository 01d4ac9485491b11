// SPDX-License-Identifier: Apache-2.0
#include "writers/sink_table.h"

#include <algorithm>
#include <array>

#include "writers/sinks/csv/csv_sink.h"
#include "writers/sinks/memory_sink.h"
#include "writers/sinks/sqlite/sqlite_sink.h"
#include "writers/sinks/tensorboard/tensorboard_sink.h"

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

}  // namespace

std::unique_ptr<Sink> make_sink(std::string_view format, const SinkContext& context) {
  const Format* found = find(format);
  return found == nullptr ? nullptr : found->make(context);
}

}  // namespace gradmon
