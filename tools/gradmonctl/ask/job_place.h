// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tools/gradmonctl/parse/argument.h"

namespace gradmon {

// The options that designate a job; "" if not given.
struct JobPlace {
  std::string endpoint;
  std::string output_dir;
  std::string keys = {};  // a directory
  std::string job = {};   // its name or launch id
};

// Adds the options --endpoint, --job, --output-dir and --keys, which fill in `place`.
void add_place(Arguments& arguments, JobPlace& place);

}  // namespace gradmon
