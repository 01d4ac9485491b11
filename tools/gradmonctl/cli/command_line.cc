// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <type_traits>
#include <utility>

#include "control/text/words.h"

namespace gradmon {
namespace {

constexpr const char* kExitCodes =
    "gradmonctl COMMAND [OPTIONS]\n"
    "\n"
    "exit codes:\n"
    "  0  done\n"
    "  1  failed, rejected, superseded, or the job runs in static mode\n"
    "  2  usage\n"
    "  4  no answer\n"
    "  5  not allowed\n"
    "  6  invalid config\n"
    "  7  only some ranks, not in time, or nothing would be collected";

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

std::string option_names(const CLI::Option& option) {
  if (option.get_positional()) {
    return option.get_option_text().empty() ? option.get_name(true, false) : option.get_option_text();
  }
  std::string names;
  for (const std::string& name : option.get_snames()) names += (names.empty() ? "-" : ", -") + name;
  for (const std::string& name : option.get_lnames()) names += (names.empty() ? "--" : ", --") + name;
  // CLI11 appends ":" and the permitted range to the type name. The type name of a list is "TEXT".
  const std::string type =
      option.get_option_text().empty() ? option.get_type_name() : option.get_option_text();
  return type.empty() ? names : names + ' ' + type.substr(0, type.find(':'));
}

// Formats gradmonctl's help, identically under every version of CLI11.
class HelpText : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    std::vector<Row> commands;
    for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
      const std::string description = command->get_description();
      commands.emplace_back(command->get_name(), description.substr(0, description.find('\n')));
    }
    std::vector<Row> arguments;
    std::vector<Row> options;
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_description().empty()) continue;
      (option->get_positional() ? arguments : options)
          .emplace_back(option_names(*option), option->get_description());
    }
    // The first line of the footer is the usage.
    const std::string footer = app->get_footer();
    const std::size_t usage_end = footer.find('\n');
    return "usage: " + footer.substr(0, usage_end) + "\n\n" + app->get_description() + '\n' +
           table("commands", commands) + table("arguments", arguments) + table("options", options) +
           (usage_end == std::string::npos ? "" : footer.substr(usage_end + 1) + '\n');
  }
};

// Refuses "off on": the second word would be read as a directory.
CLI::Validator refuses_commands(const CLI::App& command) {
  const auto check = [&command](std::string& text) -> std::string {
    const CLI::App* all = &command;
    while (all->get_parent() != nullptr) all = all->get_parent();
    const auto named = [&text](const CLI::App* one) { return one->get_name() == text; };
    if (all->get_subcommands(named).empty()) return "";
    return '"' + text + "\" is a command; the directory of that name is ./" + text;
  };
  return CLI::Validator(check, "");
}

CLI::Option* add_option(CLI::App& command, const Argument& argument) {
  return std::visit(
      [&](auto* destination) -> CLI::Option* {
        using Value = std::remove_pointer_t<decltype(destination)>;
        if constexpr (std::is_same_v<Value, bool>) {
          return command.add_flag(argument.name, *destination, argument.help);
        } else {
          CLI::Option* option = command.add_option(argument.name, *destination, argument.help);
          if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
            // CLI11 2.4 aborts on a type name with a "=", so HelpText shows the option text instead.
            option->option_text(argument.placeholder)->allow_extra_args();
          } else if (!argument.placeholder.empty()) {
            option->type_name(argument.placeholder);
          }
          if constexpr (std::is_same_v<Value, std::string>) {
            if (!argument.choices.empty()) option->check(CLI::IsMember(argument.choices));
            if (argument.name.rfind("RUN", 0) == 0) option->check(refuses_commands(command));
          } else if constexpr (!std::is_same_v<Value, std::vector<std::string>>) {
            option->check(CLI::Range(argument.least, argument.most));
          }
          return option;
        }
      },
      argument.destination);
}

void add_arguments(CLI::App& command, const Arguments& arguments) {
  std::map<std::string, CLI::Option*> options;
  for (const Argument& argument : arguments) {
    CLI::Option* option = add_option(command, argument);
    option->required(argument.required);
    options[argument.name] = option;
  }
  for (const Argument& argument : arguments) {
    if (!argument.needs.empty()) options.at(argument.name)->needs(options.at(argument.needs));
    if (!argument.excludes.empty()) options.at(argument.name)->excludes(options.at(argument.excludes));
  }
}

class Grammar {
 public:
  explicit Grammar(Subcommands subcommands) : subcommands_(std::move(subcommands)) {
    app_.formatter(std::make_shared<HelpText>());
    app_.footer(kExitCodes);
    app_.set_help_flag("-h,--help", "this help");
    app_.set_version_flag("--version", "gradmonctl " GRADMON_VERSION, "the version");
    app_.require_subcommand(0, 1);  // Words after a subcommand are its arguments.
    for (const Subcommand& each : subcommands_) {
      CLI::App* const command = app_.add_subcommand(each.name(), each.summary);
      command->footer("gradmonctl " + each.usage + (each.details.empty() ? "" : "\n\n" + each.details));
      add_arguments(*command, each.arguments);
    }
  }
  CLI::App& app() { return app_; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Subcommand& each : subcommands_) names.push_back(each.name());
    return names;
  }
  // Null for an unknown name.
  Subcommand* find(const std::string& name) {
    const auto found = std::find_if(subcommands_.begin(), subcommands_.end(),
                                    [&](const Subcommand& each) { return each.name() == name; });
    return found == subcommands_.end() ? nullptr : &*found;
  }
  // The name of the command that was parsed; "" for none.
  std::string chosen() const {
    const auto commands = app_.get_subcommands();
    return commands.empty() ? "" : commands.front()->get_name();
  }

 private:
  Subcommands subcommands_;
  CLI::App app_{"Inspect a running training job and control what it collects.", "gradmonctl"};
};

tl::unexpected<ParseExit> usage_error(const std::string& command, const std::string& text) {
  const std::string program = command.empty() ? "gradmonctl" : "gradmonctl " + command;
  return tl::make_unexpected(
      ParseExit{kExitUsage, "gradmonctl: " + text + "\ntry \"" + program + " --help\"\n"});
}

// The known word with the smallest edit distance to `word`; a known word that starts with `word` has distance
// 0. The distance is at most 1 for words of up to 3 letters, else at most 2; "" if all known words are
// farther.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
  constexpr std::size_t longest = 40;  // no command is longer
  if (word.size() > longest) return "";
  std::string nearest;
  std::size_t best = word.size() < 4 ? 1 : 2;
  for (const std::string& candidate : known) {
    const std::size_t far = candidate.rfind(word, 0) == 0 ? 0 : edit_distance(word, candidate, best);
    if (far > best || (far == best && !nearest.empty())) continue;
    best = far;
    nearest = candidate;
  }
  return nearest;
}

std::string unknown_command(const std::string& word, const std::vector<std::string>& names) {
  const std::string near = nearest_word(word, names);
  return "unknown command \"" + word + "\"" + (near.empty() ? "" : " (did you mean \"" + near + "\"?)");
}

// Moves the words after "--" to `rest`, so that CLI11 does not parse them. Does nothing if
// `rest` is null.
void split_rest(std::vector<std::string>& words, std::vector<std::string>* rest) {
  if (rest == nullptr) return;
  const auto mark = std::find(words.begin(), words.end(), "--");
  if (mark != words.end()) rest->assign(mark + 1, words.end());
  words.erase(mark, words.end());
}

}  // namespace

tl::expected<Subcommand, ParseExit> parse_command_line(Subcommands subcommands, int argc,
                                                       const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  Grammar grammar(std::move(subcommands));
  const auto help_text = [&grammar](int code) {
    const std::string chosen = grammar.chosen();
    const CLI::App& app = chosen.empty() ? grammar.app() : *grammar.app().get_subcommand(chosen);
    return tl::make_unexpected(ParseExit{code, app.help()});
  };
  if (words.empty()) return help_text(kExitUsage);
  Subcommand* const first = grammar.find(words.front());
  if (first == nullptr && words.front().rfind('-', 0) != 0)
    return usage_error("", unknown_command(words.front(), grammar.names()));
  if (first != nullptr && first->all_words != nullptr) {
    first->all_words->insert(first->all_words->end(), words.begin() + 1, words.end());
    return std::move(*first);
  }
  if (first != nullptr) split_rest(words, first->rest);
  try {
    std::reverse(words.begin(), words.end());  // CLI11 reads the words from the end.
    grammar.app().parse(words);
  } catch (const CLI::CallForHelp&) {
    return help_text(kExitDone);
  } catch (const CLI::CallForVersion& version) {
    return tl::make_unexpected(ParseExit{kExitDone, std::string(version.what()) + "\n"});
  } catch (const CLI::Error& error) {
    return usage_error(grammar.chosen(), error.what());
  }
  Subcommand* const chosen = grammar.find(grammar.chosen());
  if (chosen == nullptr) return help_text(kExitUsage);
  if (const std::string error = chosen->complete(); !error.empty()) return usage_error(chosen->name(), error);
  return std::move(*chosen);
}

}  // namespace gradmon
