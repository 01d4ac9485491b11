// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>
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

class Subcommand;
using Subcommands = std::vector<std::unique_ptr<Subcommand>>;

// One command of gradmonctl: its name, its arguments and its action.
class Subcommand {
 public:
  Subcommand() = default;
  Subcommand(const Subcommand&) = delete;
  Subcommand& operator=(const Subcommand&) = delete;
  virtual ~Subcommand() = default;

  // The first word is the command's name: "validate FILE".
  virtual std::string usage() const = 0;
  // One line for the list of commands.
  virtual std::string summary() const = 0;
  // Shown below the options: examples, definitions. Whole lines without the last line end.
  virtual std::string details() const { return ""; }
  // In the order of the help. Their destinations are members of this object.
  virtual Arguments arguments() { return {}; }
  // Storage of the words after "--"; null: the command takes none.
  virtual std::vector<std::string>* rest() { return nullptr; }
  // Storage, holding the name, to which all words after the name are appended, unparsed; null: they are
  // parsed here.
  virtual std::vector<std::string>* all_words() { return nullptr; }
  // Called when the arguments are filled in. Returns the usage error of their combination, or "".
  virtual std::string complete() { return ""; }
  // Runs the command with the real network, clock and files. Returns the exit code. Called once.
  virtual int perform(const Console& console) = 0;
};

// A subcommand whose arguments are stored in the members of a Request.
template <class Request>
class SubcommandFor : public Subcommand {
 public:
  const Request& request() const { return request_; }

 protected:
  Request& request() { return request_; }

 private:
  Request request_;
};

// A subcommand that needs no more than its arguments and its action.
template <class Request>
class PlainSubcommand : public SubcommandFor<Request> {
 public:
  using List = Arguments (*)(Request&);
  using Act = int (*)(const Request&, const Console&);

  PlainSubcommand(const char* use, const char* line, List list, Act act)
      : usage_(use), summary_(line), list_(list), act_(act) {}
  std::string usage() const override { return usage_; }
  std::string summary() const override { return summary_; }
  Arguments arguments() override { return list_(this->request()); }
  int perform(const Console& console) override { return act_(this->request(), console); }

 private:
  const char* const usage_;
  const char* const summary_;
  const List list_;
  const Act act_;
};

// The reason to run no subcommand: the user asked for help or the version (code 0, for stdout), or made a
// usage error (code 2, for stderr).
struct ParseExit {
  int code = kExitUsage;
  std::string text;
};

// Parses the command line. Returns the subcommand that it names, with its arguments
// filled in. Throws nothing.
tl::expected<std::unique_ptr<Subcommand>, ParseExit> parse_command_line(Subcommands subcommands, int argc,
                                                                        const char* const* argv);

}  // namespace gradmon
