// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "control/alerts/alert_report.h"

namespace gradmon {

// An alert as gradmonctl prints it and as `on_alert.exec` gets it. A value that is not finite becomes one of
// the texts "nan", "inf" and "-inf", because JSON has no such numbers. Omits "left_out" if it is 0. Any
// thread.
nlohmann::ordered_json to_json(const Alert& alert);
// Reads the alert of such an object. Cuts its texts as bounded() does; missing fields keep their default.
// Nullopt if a field has another type, or the rank or the number is missing.
std::optional<Alert> alert_from(const nlohmann::json& json);

}  // namespace gradmon
