// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <variant>
#include <vector>

#include "tools/gradmonctl/cli/console.h"

namespace gradmon {

// One argument of a subcommand: its parsing and its help. A value.
struct Argument {
  // Storage of the value. A flag sets a bool; a list takes all remaining words.
  using Destination = std::variant<bool*, std::string*, std::int64_t*, std::optional<std::int64_t>*,
                                   std::vector<std::string>*>;

  std::string name;  // "--json"; without dashes it is positional: "FILE"
  Destination destination;
  std::string help;              // may have several lines; "": not for users, and not in the help
  std::string placeholder = {};  // stands for the value in the help: "SECONDS"
  bool required = false;
  std::string needs = {};                 // the option required with this one
  std::string excludes = {};              // the option excluded by this one
  std::vector<std::string> choices = {};  // the permitted texts; empty: any text
  // The range of a number. CLI11 2.1 turns a number above int64 into the largest int64, so `most`
  // excludes it.
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max() - 1;
};

using Arguments = std::vector<Argument>;

// The option --all of the commands that fit a list to the terminal.
inline Argument list_all(bool& all) {
  return {"--all", &all, "print the whole list and whole lines even in a terminal"};
}

// One command of gradmonctl: its name, its arguments and its action. A value.
struct Subcommand {
  std::any request;     // a shared_ptr to the storage of the arguments
  std::string usage;    // the first word is the command's name: "validate FILE"
  std::string summary;  // one line for the list of commands
  Arguments arguments;  // in the order of the help
  // Runs the command with the real network, clock and files. Returns the exit code. Called once.
  std::function<int(const Console&)> perform;
  // Called when the arguments are filled in. Returns the usage error of their combination, or "".
  std::function<std::string()> complete = [] { return std::string(); };
  // Shown below the options: examples, definitions. Whole lines without the last line end.
  std::string details = {};
  std::vector<std::string>* rest = nullptr;  // storage of the words after "--"; null: the command takes none
  // Storage, holding the name, to which all words after the name are appended, unparsed; null: they are
  // parsed here.
  std::vector<std::string>* all_words = nullptr;

  std::string name() const { return usage.substr(0, usage.find(' ')); }
};
using Subcommands = std::vector<Subcommand>;

// The reason to run no subcommand: the user asked for help or the version (code 0, for stdout), or made a
// usage error (code 2, for stderr).
struct ParseExit {
  int code = kExitUsage;
  std::string text;
};

// Parses the command line. Returns the subcommand that it names, with its arguments
// filled in. Throws nothing.
tl::expected<Subcommand, ParseExit> parse_command_line(Subcommands subcommands, int argc,
                                                       const char* const* argv);

}  // namespace gradmon
