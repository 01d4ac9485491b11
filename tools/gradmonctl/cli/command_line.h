// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <tl/expected.hpp>

#include "tools/gradmonctl/cli/subcommand.h"

namespace gradmon {

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
