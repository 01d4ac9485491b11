// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tools/gradmonctl/cli/argument.h"

namespace gradmon {

// The options that designate a job; "" if not given.
struct JobSelector {
  std::string endpoint;
  std::string output_dir;
  std::string keys = {};  // a directory
  std::string job = {};   // its name or launch id
};

// Adds the options --endpoint, --job, --output-dir and --keys, which fill in `selector`. If `arguments` has
// no positional argument, adds the output directory as one: RUN.
void add_job_options(Arguments& arguments, JobSelector& selector);

}  // namespace gradmon
