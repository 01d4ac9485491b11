// SPDX-License-Identifier: Apache-2.0
// The output formats, by their names in the config's `format`.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "control/step.h"
#include "writers/queue/name_table.h"
#include "writers/queue/sink.h"
#include "writers/sinks/earlier_output.h"
#include "writers/sinks/memory_sink.h"

namespace gradmon {

// The arguments for making a sink. A value; sinks copy what they need.
struct SinkContext {
  std::function<std::filesystem::path()>
      directory;  // returns the run's directory, made if missing; called on the writer thread
  std::shared_ptr<const NameTable> names;
  std::shared_ptr<LastStep> last_step;
  Rank rank = {};      // of the rows
  std::string config;  // the text of the revision's config
  Resume resume = Resume::no;
  std::shared_ptr<const ScopeTable> scopes = nullptr;  // null: unknown
  bool implied = false;                                // the config does not name the sink
};

// The numbers of samples in the files of a rank's run directory, in any format: for all steps from `from` on,
// and for one step before it. If the directory has none, those of another rank of the run, because the number
// covers all ranks. Changes no row. An error names the file.
[[nodiscard]] tl::expected<SamplesByStep, std::string> find_samples(const std::filesystem::path& directory,
                                                                    Step from);

// Null if the format is unknown.
std::unique_ptr<Sink> make_sink(std::string_view format, const SinkContext& context);

}  // namespace gradmon
