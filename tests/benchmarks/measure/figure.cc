// SPDX-License-Identifier: Apache-2.0
#include "tests/benchmarks/measure/figure.h"

#include <nlohmann/json.hpp>

#include "tests/benchmarks/measure/range.h"

namespace gradmon {

std::string line_of(const Figure& figure) {
  std::string text = figure.name + "  " + text_of(figure.value) + " " + figure.unit;
  if (figure.goal) {
    text += figure.goal->sense == Goal::Sense::at_most ? "  (goal: at most " : "  (goal: at least ";
    text += text_of(figure.goal->bound) + ")";
  }
  if (const auto met = figure.is_met()) text += *met ? "  met" : "  MISSED";
  return text + "\n    " + figure.how;
}

std::string json_of(const std::vector<Figure>& figures) {
  nlohmann::ordered_json all = {{"figures", nlohmann::ordered_json::array()}};
  for (const Figure& figure : figures) {
    nlohmann::ordered_json one;
    one["name"] = figure.name;
    one["value"] = figure.value;
    one["unit"] = figure.unit;
    one["goal"] = nullptr;
    if (figure.goal) one["goal"] = figure.goal->bound;
    one["met"] = nullptr;
    if (const auto met = figure.is_met()) one["met"] = *met;
    one["how"] = figure.how;
    all["figures"].push_back(std::move(one));
  }
  return all.dump(2) + "\n";
}

}  // namespace gradmon
