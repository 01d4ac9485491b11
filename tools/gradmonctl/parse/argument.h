// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace gradmon {

// One argument of a subcommand, as the command line is read and as the help shows it. A value.
struct Argument {
  // Where its value goes: a bool is set by a flag, a list takes every word that is left.
  using Destination = std::variant<bool*, std::string*, std::int64_t*, std::optional<std::int64_t>*,
                                   std::vector<std::string>*>;

  std::string name;  // "--json"; without dashes it is positional: "FILE"
  Destination destination;
  std::string help;              // may have several lines
  std::string placeholder = {};  // stands for the value in the help: "SECONDS"
  bool required = false;
  std::string needs = {};                 // the option without which this one is a usage error
  std::string excludes = {};              // the option with which this one is a usage error
  std::vector<std::string> choices = {};  // of a text; empty: any text
  // Of a number. CLI11 2.1 turns a number above the range of int64 into the largest: that one is refused.
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max() - 1;
};

using Arguments = std::vector<Argument>;

// The option --all of the commands that fit a list to the terminal.
inline Argument list_all(bool& all) {
  return {"--all", &all, "in a terminal, too: the whole list, and whole lines"};
}

}  // namespace gradmon
