// SPDX-License-Identifier: Apache-2.0
// The alerts of a step as a rank sends them to the lead hub. Values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "gradmon/alert.h"

namespace gradmon {

inline constexpr std::size_t kMostAlertsInAReport = 16;

// Calls visit(name, number, member) for each field of an Alert: its name in JSON and in Python, its number in
// messages, one never used before, and the pointer to it.
template <typename Visit>
void each_alert_field(Visit visit) {
  visit("number", 1, &Alert::number);
  visit("at", 2, &Alert::at);
  visit("rank", 3, &Alert::rank);
  visit("step", 5, &Alert::step);
  visit("micro_step", 6, &Alert::micro_step);
  visit("pp_stage", 7, &Alert::pp_stage);
  visit("vpp_stage", 8, &Alert::vpp_stage);
  visit("call_id", 9, &Alert::call_id);
  visit("rule", 4, &Alert::rule);
  visit("tag_name", 10, &Alert::tag_name);
  visit("op", 11, &Alert::op);
  visit("value", 12, &Alert::value);
  visit("history_mean", 13, &Alert::history_mean);
  visit("message", 14, &Alert::message);
  visit("left_out", 15, &Alert::left_out);
}

// The alerts of one step of one rank.
struct AlertReport {
  std::vector<Alert> alerts;   // at most kMostAlertsInAReport in a message
  std::uint64_t left_out = 0;  // alerts of that step missing in `alerts`
};

// Cuts the report to kMostAlertsInAReport alerts, and their texts to 64 (rule, op), 512 (tag_name) and 1,000
// bytes (message). Adds the removed alerts to left_out.
AlertReport bounded(AlertReport report);

// Returns roughly the bytes that the alert takes in a message.
std::size_t size_of(const Alert& alert);

// An alert as gradmonctl prints it and as `on_alert.exec` gets it. A value that is not finite becomes one of
// the texts "nan", "inf" and "-inf", because JSON has no such numbers. Omits "left_out" if it is 0. Any
// thread.
nlohmann::ordered_json to_json(const Alert& alert);
// Reads the alert of such an object. Cuts its texts as bounded() does; missing fields keep their default.
// Nullopt if a field has another type, or the rank or the number is missing.
std::optional<Alert> alert_from(const nlohmann::json& json);

}  // namespace gradmon
