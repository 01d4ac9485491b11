// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/alert_json.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace gradmon {
namespace {

nlohmann::ordered_json to_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

double value_from(const nlohmann::json& json) {
  if (json.is_number()) return json.get<double>();
  const auto text = json.get<std::string>();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

// Throws if the field is not an integer.
std::int64_t integer_from(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() ? 0 : found->get_ref<const nlohmann::json::number_integer_t&>();
}

}  // namespace

nlohmann::ordered_json to_json(const RankAlert& alert) {
  nlohmann::ordered_json json{{"number", alert.number},
                              {"at", alert.at},
                              {"rank", alert.rank.value},
                              {"step", alert.step},
                              {"micro_step", alert.micro_step},
                              {"pp_stage", alert.pp_stage},
                              {"vpp_stage", alert.vpp_stage},
                              {"call_id", alert.call_id},
                              {"rule", alert.rule},
                              {"tag_name", alert.tag_name},
                              {"op", alert.op},
                              {"value", to_json(alert.value)},
                              {"history_mean", to_json(alert.history_mean)},
                              {"message", alert.message}};
  if (alert.left_out > 0) json["left_out"] = alert.left_out;
  return json;
}

std::optional<RankAlert> alert_from(const nlohmann::json& json) {
  AlertReport report;
  RankAlert& alert = report.alerts.emplace_back();
  try {
    const std::int64_t rank = json.is_object() && json.contains("rank") ? integer_from(json, "rank") : -1;
    const std::int64_t number = integer_from(json, "number");
    if (rank < 0 || rank > std::numeric_limits<int>::max() || number <= 0) return {};
    alert.rank = Rank{static_cast<int>(rank)};
    alert.number = static_cast<std::uint64_t>(number);
    alert.at = integer_from(json, "at");
    alert.step = integer_from(json, "step");
    alert.micro_step = integer_from(json, "micro_step");
    alert.pp_stage = integer_from(json, "pp_stage");
    alert.vpp_stage = integer_from(json, "vpp_stage");
    alert.call_id = static_cast<std::uint64_t>(integer_from(json, "call_id"));
    alert.rule = json.value("rule", "");
    alert.tag_name = json.value("tag_name", "");
    alert.op = json.value("op", "");
    if (json.contains("value")) alert.value = value_from(json["value"]);
    if (json.contains("history_mean")) alert.history_mean = value_from(json["history_mean"]);
    alert.message = json.value("message", "");
    alert.left_out = static_cast<std::uint64_t>(integer_from(json, "left_out"));
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return std::move(bounded(std::move(report)).alerts.front());
}

}  // namespace gradmon
