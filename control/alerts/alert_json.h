// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "control/alerts/alert_report.h"

namespace gradmon {

// An alert as gradmonctl prints it and as `on_alert.exec` gets it. A value that is not finite is one of the
// texts "nan", "inf" and "-inf", because JSON has no such numbers. "left_out" is there if it is not 0. Any
// thread.
nlohmann::ordered_json json_of(const RankAlert& alert);
// The alert of such an object, its texts cut as bounded() does; fields that are missing keep their default.
// Nullopt if a field has another type, or there is no rank or no number.
std::optional<RankAlert> alert_from(const nlohmann::json& json);

}  // namespace gradmon
