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

// One argument of a subcommand: its parsing and its help. A value.
struct Argument {
  // Storage of the value. A flag sets a bool; a list takes all remaining words.
  using Destination = std::variant<bool*, std::string*, std::int64_t*, std::optional<std::int64_t>*,
                                   std::vector<std::string>*>;

  std::string name;  // "--json"; without dashes it is positional: "FILE"
  Destination destination;
  std::string help;              // may have several lines
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

}  // namespace gradmon
