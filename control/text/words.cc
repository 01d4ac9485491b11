// SPDX-License-Identifier: Apache-2.0
#include "control/text/words.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
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

std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  const std::size_t difference = a.size() < b.size() ? b.size() - a.size() : a.size() - b.size();
  if (difference > limit) return limit + 1;
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
    if (*std::min_element(row.begin(), row.end()) > limit) return limit + 1;
  }
  return std::min(row.back(), limit + 1);
}

}  // namespace gradmon
