// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/value_text.h"

#include <cmath>
#include <cstdio>

namespace gradmon {

std::string value_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

OrderedJson value_json(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(value_text(value));
}

std::string layer_text(std::int32_t vpp_stage, const std::string& name) {
  const std::string shown = name.empty() ? "(root)" : name;
  return vpp_stage == 0 ? shown : std::to_string(vpp_stage) + ':' + shown;
}

std::string micro_step_text(std::int32_t micro_step) {
  return micro_step < 0 ? "-" : std::to_string(micro_step);
}

std::vector<Field> fields_of(const std::vector<Sample>& samples) {
  std::uint32_t mask = 0;
  for (const Sample& sample : samples) mask |= sample.mask;
  std::vector<Field> fields;
  for (Field field = 0; field < kFields; ++field) {
    if ((mask >> field & 1U) != 0) fields.push_back(field);
  }
  return fields;
}

OrderedJson json_of(const Sample& sample) {
  OrderedJson json = {{"step", sample.step},
                      {"micro_step", step_or_null(sample.micro_step)},
                      {"vpp_stage", sample.vpp_stage},
                      {"name", sample.name}};
  for (Field field = 0; field < kFields; ++field) {
    if ((sample.mask >> field & 1U) != 0) json[name_of_field(field)] = value_json(sample.values[field]);
  }
  return json;
}

}  // namespace gradmon
