// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/alert_report.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "control/text/utf8.h"

namespace gradmon {
namespace {

constexpr std::size_t kMostName = 64;
constexpr std::size_t kMostTag = 512;
constexpr std::size_t kMostMessage = 1'000;
constexpr std::size_t kNumbers = 100;  // bytes of the fields other than texts

void cut(std::string& text, std::size_t most) { text.resize(utf8_prefix(text, most).size()); }

}  // namespace

AlertReport bounded(AlertReport report) {
  if (report.alerts.size() > kMostAlertsInAReport) {
    report.left_out += report.alerts.size() - kMostAlertsInAReport;
    report.alerts.resize(kMostAlertsInAReport);
  }
  for (Alert& alert : report.alerts) {
    cut(alert.rule, kMostName);
    cut(alert.op, kMostName);
    cut(alert.tag_name, kMostTag);
    cut(alert.message, kMostMessage);
  }
  return report;
}

std::size_t size_of(const Alert& alert) {
  return kNumbers + alert.rule.size() + alert.op.size() + alert.tag_name.size() + alert.message.size();
}

namespace {

template <typename Value>
nlohmann::ordered_json json_form(const Value& value) {
  return value;
}

nlohmann::ordered_json json_form(Rank rank) { return rank.value; }

nlohmann::ordered_json json_form(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

// These throw if the JSON has another type.
void read(const nlohmann::json& json, std::string& text) { text = json.get<std::string>(); }

template <typename Integer>
void read(const nlohmann::json& json, Integer& value) {
  value = static_cast<Integer>(json.get_ref<const nlohmann::json::number_integer_t&>());
}

// A number that no rank has becomes -1.
void read(const nlohmann::json& json, Rank& rank) {
  std::int64_t value = 0;
  read(json, value);
  const bool possible = value >= 0 && value <= std::numeric_limits<int>::max();
  rank.value = possible ? static_cast<int>(value) : -1;
}

void read(const nlohmann::json& json, double& value) {
  if (json.is_number()) {
    value = json.get<double>();
    return;
  }
  const auto text = json.get<std::string>();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  value = text == "inf" ? infinity : text == "-inf" ? -infinity : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

nlohmann::ordered_json to_json(const Alert& alert) {
  nlohmann::ordered_json json;
  each_alert_field(
      [&](const char* name, std::uint32_t, auto member) { json[name] = json_form(alert.*member); });
  if (alert.left_out == 0) json.erase("left_out");
  return json;
}

std::optional<Alert> alert_from(const nlohmann::json& json) {
  AlertReport report;
  Alert& alert = report.alerts.emplace_back();
  alert.rank = Rank{-1};
  try {
    each_alert_field([&](const char* name, std::uint32_t, auto member) {
      if (json.is_object() && json.contains(name)) read(json[name], alert.*member);
    });
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  const auto number = static_cast<std::int64_t>(alert.number);
  if (alert.rank.value < 0 || number <= 0) return {};
  return std::move(bounded(std::move(report)).alerts.front());
}

}  // namespace gradmon
