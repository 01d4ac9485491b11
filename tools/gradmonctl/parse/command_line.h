// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <tl/expected.hpp>

#include "tools/gradmonctl/parse/subcommand.h"

namespace gradmon {

// Why there is nothing to do: help that was asked for (code 0, for stdout), or
// a usage error (code 2, for stderr).
struct NoSubcommand {
  int code = kExitUsage;
  std::string text;
};

// Reads the command line. Returns the one of `subcommands` that it names, with its
// arguments in place. Throws nothing.
tl::expected<std::unique_ptr<Subcommand>, NoSubcommand> parse_command_line(Subcommands subcommands, int argc,
                                                                           const char* const* argv);

}  // namespace gradmon
