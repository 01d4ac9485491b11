// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/gradmonctl/cli/argument.h"
#include "tools/gradmonctl/cli/console.h"

namespace gradmon {

class Subcommand;
using Subcommands = std::vector<std::unique_ptr<Subcommand>>;

// One command of gradmonctl: its name, its arguments and its action; or a group of commands.
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
  // The commands of a group, in the order of the help: "first" of "analyse first". A group has no arguments,
  // and is never performed.
  virtual Subcommands members() { return {}; }
  // In the order of the help. Their destinations are members of this object.
  virtual Arguments arguments() { return {}; }
  // Storage of the words after "--"; null: the command takes none.
  virtual std::vector<std::string>* rest() { return nullptr; }
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

}  // namespace gradmon
