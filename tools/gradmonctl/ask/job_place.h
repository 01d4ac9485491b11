// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tools/gradmonctl/parse/argument.h"

namespace gradmon {

// Where to look for the job; what is "" was not given.
struct JobPlace {
  std::string endpoint;
  std::string output_dir;
  std::string keys = {};  // a directory
  std::string job = {};   // its name or launch id
};

// Adds the options that fill in a place: --endpoint, --job, --output-dir and --keys.
void add_place(Arguments& arguments, JobPlace& place);

}  // namespace gradmon
