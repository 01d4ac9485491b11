// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tools/analyse/first_not_finite.h"
#include "tools/analyse/rows/row.h"
#include "tools/gradmonctl/cli/json_rule.h"

namespace gradmon {

// At most 6 significant digits; "nan", "inf", "-inf".
std::string value_text(double value);
// A number; or "nan", "inf" or "-inf" as a text, because JSON has no such numbers.
OrderedJson value_json(double value);

// "weight", of the model chunk 1 "1:weight"; the root module's empty name as "(root)".
std::string layer_text(std::int32_t vpp_stage, const std::string& name);

// "3"; "-" for -1.
std::string micro_step_text(std::int32_t micro_step);

// The statistics present in any of the samples, in the order of Field.
std::vector<Field> fields_of(const std::vector<Sample>& samples);
OrderedJson to_json(const Sample& sample);

struct FirstReport {
  FirstNotFinite first;
  NotFiniteContext around;  // of first.first
};

std::string first_text(const Run& run, const FirstReport& report);
OrderedJson first_json(const Run& run, const FirstReport& report, const Problems& problems);

// "NaN in \"fc1.weight\" (grad_reduced), step 37, in the backward pass, rank 2"
std::string text_of(const NotFinitePlace& place);
OrderedJson to_json(const NotFinitePlace& place);

// Names in one line what FirstNotFinite skips; "" if it skips nothing.
std::string left_out_text(const FirstNotFinite& found);
OrderedJson left_out_json(const FirstNotFinite& found);

}  // namespace gradmon
