// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <exception>
#include <memory>

#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/listing.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/commands/config_text.h"
#include "tools/gradmonctl/commands/import_mindformers.h"

namespace gradmon {
namespace {

constexpr std::size_t kMaxImportedBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxShownBytes = 60;  // bytes of a value in the table

std::string line_of(const YamlError& error, const std::string& file) {
  std::string line = file + ":" + std::to_string(error.place.line) + ":" + std::to_string(error.place.column);
  line += error.place.key.empty() ? ": " : ": " + error.place.key + ": ";
  return line + error.text;
}

std::string shortened(const std::string& value) {
  return value.size() <= kMaxShownBytes ? value : value.substr(0, kMaxShownBytes) + "...";
}

std::string table_of(const Imported& imported) {
  using Align = TextTable::Align;
  TextTable table(
      {{"line", Align::right}, {"key", Align::left}, {"value", Align::left}, {"becomes", Align::left}});
  for (const ImportedKey& key : imported.keys)
    table.add({std::to_string(key.place.line), key.place.key, shortened(key.value), key.becomes});
  return table.text();
}

int import_file(const ImportRequest& request, const Console& console) {
  const auto text = read_config_text(request.file);
  if (!text) return report_error(text.error(), console);
  if (text->size() > kMaxImportedBytes) return report_error(request.file + ": more than 1 MiB", console);
  const auto imported = import_mindformers(*text);
  if (!imported) {
    for (const YamlError& error : imported.error())
      console.err << printable(line_of(error, request.file)) << '\n';
    return kExitInvalidConfig;
  }
  console.err << table_of(*imported);
  const std::string name = request.output.empty() ? "the config made of " + request.file : request.output;
  if (const int code = report_config_problems(imported->config, name, console); code != kExitDone)
    return code;
  if (!request.output.empty())
    return make_config_file(request.output, imported->config, Existing::keep, console);
  console.out << imported->config;
  return kExitDone;
}

}  // namespace

// The libraries that read and write the file can throw.
int import_command(const ImportRequest& request, const Console& console) {
  try {
    return import_file(request, console);
  } catch (const std::exception& error) {
    return report_error(request.file + ": " + error.what(), console);
  }
}

namespace {

class ImportSubcommand : public SubcommandFor<ImportRequest> {
 public:
  std::string usage() const override { return "import FILE [--output CONFIG]"; }
  std::string summary() const override {
    return "Make a config file of a MindSpore Transformers YAML file's monitoring keys";
  }
  Arguments arguments() override {
    Argument file{"FILE", &request().file, "the YAML file"};
    file.required = true;
    return {file,
            {"--output", &request().output,
             "the config file to make, which must not exist yet\n(default: stdout)", "CONFIG"}};
  }
  int perform(const Console& console) override { return import_command(request(), console); }
};

}  // namespace

std::unique_ptr<Subcommand> import_subcommand() { return std::make_unique<ImportSubcommand>(); }

}  // namespace gradmon
