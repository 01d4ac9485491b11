// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tools/analyse/not_finite_context.h"
#include "tools/analyse/rows/problems.h"
#include "tools/gradmonctl/cli/json_rule.h"

namespace gradmon {

struct FirstReport {
  FirstNotFinite first;
  NotFiniteContext around;  // of first.first
};

std::string first_text(const Run& run, const FirstReport& report);
OrderedJson first_json(const Run& run, const FirstReport& report, const Problems& problems);

// "NaN in \"fc1.weight\" (grad_reduced), step 37, in the backward pass, rank 2"
std::string text_of(const NotFinitePlace& place);
OrderedJson json_of(const NotFinitePlace& place);

// Names in one line what FirstNotFinite skips; "" if it skips nothing.
std::string left_out_text(const FirstNotFinite& found);
OrderedJson left_out_json(const FirstNotFinite& found);

}  // namespace gradmon
