// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/parse/help_text.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace gradmon {
namespace {

using Row = std::pair<std::string, std::string>;

std::string table(const std::string& title, const std::vector<Row>& rows) {
  if (rows.empty()) return {};
  std::size_t width = 0;
  for (const Row& row : rows) width = std::max(width, row.first.size());
  std::string text = "\n" + title + ":\n";
  for (const Row& row : rows) {
    text += "  " + row.first + std::string(width - row.first.size() + 2, ' ');
    for (const char c : row.second) {
      text += c;
      if (c == '\n') text += std::string(width + 4, ' ');
    }
    text += '\n';
  }
  return text;
}

std::string names_of(const CLI::Option& option) {
  if (option.get_positional()) {
    return option.get_option_text().empty() ? option.get_name(true, false) : option.get_option_text();
  }
  std::string names;
  for (const std::string& name : option.get_snames()) names += (names.empty() ? "-" : ", -") + name;
  for (const std::string& name : option.get_lnames()) names += (names.empty() ? "--" : ", --") + name;
  // CLI11 appends ":" and the permitted range to the type name.
  const std::string type = option.get_type_name();
  return type.empty() ? names : names + ' ' + type.substr(0, type.find(':'));
}

}  // namespace

std::string HelpText::make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const {
  std::vector<Row> commands;
  for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    const std::string description = command->get_description();
    commands.emplace_back(command->get_name(), description.substr(0, description.find('\n')));
  }
  std::vector<Row> arguments;
  std::vector<Row> options;
  for (const CLI::Option* option : app->get_options()) {
    (option->get_positional() ? arguments : options)
        .emplace_back(names_of(*option), option->get_description());
  }
  // The first line of the footer is the usage.
  const std::string footer = app->get_footer();
  const std::size_t usage_end = footer.find('\n');
  return "usage: " + footer.substr(0, usage_end) + "\n\n" + app->get_description() + '\n' +
         table("commands", commands) + table("arguments", arguments) + table("options", options) +
         (usage_end == std::string::npos ? "" : footer.substr(usage_end + 1) + '\n');
}

}  // namespace gradmon
