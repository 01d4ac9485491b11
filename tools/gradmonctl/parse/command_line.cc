// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/parse/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <type_traits>

#include "tools/gradmonctl/parse/help_text.h"
#include "tools/gradmonctl/parse/nearest_word.h"

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
    "  7  only some ranks, or not in time";

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
    for (const auto& subcommand : subcommands_) {
      const std::string usage = subcommand->usage();
      names_.push_back(usage.substr(0, usage.find(' ')));
      CLI::App* command = app_.add_subcommand(names_.back(), subcommand->summary());
      command->footer("gradmonctl " + usage);
      add_arguments(*command, subcommand->arguments());
    }
  }

  CLI::App& app() { return app_; }
  // In the order of the subcommands.
  const std::vector<std::string>& names() const { return names_; }
  // Null if there is no subcommand of this name.
  Subcommand* find(const std::string& name) const {
    const std::size_t index = index_of(name);
    return index == names_.size() ? nullptr : subcommands_[index].get();
  }
  std::unique_ptr<Subcommand> take(const std::string& name) {
    return std::move(subcommands_[index_of(name)]);
  }
  const CLI::App* chosen() const {
    const auto commands = app_.get_subcommands();
    return commands.empty() ? nullptr : commands.front();
  }

 private:
  std::size_t index_of(const std::string& name) const {
    return static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
  }

  Subcommands subcommands_;
  std::vector<std::string> names_;
  CLI::App app_{"Inspect a running training job and control what it collects.", "gradmonctl"};
};

tl::unexpected<ParseExit> usage_error(const std::string& command, const std::string& text) {
  const std::string program = command.empty() ? "gradmonctl" : "gradmonctl " + command;
  return tl::make_unexpected(
      ParseExit{kExitUsage, "gradmonctl: " + text + "\ntry \"" + program + " --help\"\n"});
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

tl::expected<std::unique_ptr<Subcommand>, ParseExit> parse_command_line(Subcommands subcommands, int argc,
                                                                        const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  Grammar grammar(std::move(subcommands));
  const auto help_of = [](const CLI::App& app, int code) {
    return tl::make_unexpected(ParseExit{code, app.help()});
  };
  if (words.empty()) return help_of(grammar.app(), kExitUsage);
  if (Subcommand* first = grammar.find(words.front())) {
    split_rest(words, first->rest());
  } else if (words.front().rfind('-', 0) != 0) {
    return usage_error("", unknown_command(words.front(), grammar.names()));
  }
  try {
    std::reverse(words.begin(), words.end());  // CLI11 reads the words from the end.
    grammar.app().parse(words);
  } catch (const CLI::CallForHelp&) {
    return help_of(grammar.chosen() ? *grammar.chosen() : grammar.app(), kExitDone);
  } catch (const CLI::CallForVersion& version) {
    return tl::make_unexpected(ParseExit{kExitDone, std::string(version.what()) + "\n"});
  } catch (const CLI::Error& error) {
    return usage_error(grammar.chosen() ? grammar.chosen()->get_name() : "", error.what());
  }
  if (grammar.chosen() == nullptr) return help_of(grammar.app(), kExitUsage);
  const std::string name = grammar.chosen()->get_name();
  std::unique_ptr<Subcommand> subcommand = grammar.take(name);
  if (const std::string error = subcommand->complete(); !error.empty()) return usage_error(name, error);
  return subcommand;
}

}  // namespace gradmon
