// SPDX-License-Identifier: Apache-2.0
// The formats that rows can be written in, by the name that the config's `format` has for each.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "writers/queue/name_table.h"
#include "writers/queue/sink.h"
#include "writers/sinks/last_step.h"

namespace gradmon {

// What a sink is made with. A value; sinks outlive whoever made it.
struct SinkPlace {
  std::function<std::filesystem::path()>
      directory;  // of the run; made where it is missing. The writer thread's
  std::shared_ptr<const NameTable> names;
  std::shared_ptr<LastStep> last_step;
};

// Null where rows cannot be written in that format.
std::unique_ptr<Sink> make_sink(std::string_view format, const SinkPlace& place);

bool has_sink(std::string_view format);

// For messages: "csv, api".
std::string sink_formats();

}  // namespace gradmon
