// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "control/alerts/alert_report.h"

namespace gradmon {

// An alert as gradmonctl prints it and as `on_alert.exec` gets it. A value that is not finite is one of the
// texts "nan", "inf" and "-inf", because JSON has no such numbers. Any thread.
nlohmann::ordered_json json_of(const RankAlert& alert);

}  // namespace gradmon
