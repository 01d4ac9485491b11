// SPDX-License-Identifier: Apache-2.0
#include "control/text/alert_words.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

namespace gradmon {
namespace {

// Gives the words before the statistic, by the tag's task (writers/alerts/ALERTS.md).
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kTensors{
    {{"actv", ""},
     {"actv_grad", "gradient "},
     {"pre_grad", "unreduced gradient "},
     {"acc_grad", "unreduced gradient "},
     {"post_grad", "gradient "},
     {"grad_reduced", "gradient "},
     {"param_origin", "weight "},
     {"param_updated", "updated weight "}}};

// Removes ":3" from the end. Returns "" or " in micro step 3"; the first micro step needs no words.
std::string take_micro_step(std::string_view& name) {
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  if (digits <= 1 || digits == name.size() || name[digits - 1] != ':') return "";
  const std::string_view micro_step = name.substr(digits);
  name.remove_suffix(micro_step.size() + 1);
  return micro_step == "0" ? "" : " in micro step " + std::string(micro_step);
}

}  // namespace

std::string names_of_ranks(const std::vector<int>& ranks, std::size_t most) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == most) return text + " and " + std::to_string(ranks.size() - i) + " more";
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

std::string number_text(double value, int digits) {
  if (std::isnan(value)) return "nan";
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.*g", digits, value);
  return text.data();
}

std::string series_text(std::string_view tag_name, std::string_view op) {
  const std::size_t slash = tag_name.rfind('/');
  const std::size_t rank = slash == 0 || slash == tag_name.npos ? slash : tag_name.rfind("/rank", slash - 1);
  if (rank == tag_name.npos || rank == 0) return std::string(tag_name);
  const std::string_view task = tag_name.substr(slash + 1);
  std::string_view name = tag_name.substr(0, rank);
  if (name.substr(0, 2) == "0:") name.remove_prefix(2);
  const std::string where = take_micro_step(name);
  if (task == "scalar") return std::string(name);
  std::string text = std::string(task) + " ";
  for (const auto& [of, words] : kTensors) {
    if (of == task) text = words;
  }
  return text.append(op).append(" of ").append(name).append(where);
}

}  // namespace gradmon
