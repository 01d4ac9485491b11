// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/gradmonctl/parse/argument.h"
#include "tools/gradmonctl/show/console.h"

namespace gradmon {

// One command of gradmonctl: what it is called, what it takes, and what it does.
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
  // In the order in which the help lists them. Their destinations are within this object.
  virtual Arguments arguments() { return {}; }
  // Where the words after "--" go; null: the command takes none.
  virtual std::vector<std::string>* rest() { return nullptr; }
  // Called once the arguments are in place. The usage error that they make together, "" for none.
  virtual std::string complete() { return ""; }
  // Does it, with the real network, clock and files. Returns the exit code. Called once.
  virtual int perform(const Console& console) = 0;
};

// A subcommand whose arguments go to the members of a Request.
template <class Request>
class SubcommandFor : public Subcommand {
 public:
  const Request& request() const { return request_; }

 protected:
  Request& request() { return request_; }

 private:
  Request request_;
};

using Subcommands = std::vector<std::unique_ptr<Subcommand>>;

}  // namespace gradmon
