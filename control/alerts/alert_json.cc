// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/alert_json.h"

#include <cmath>

namespace gradmon {
namespace {

nlohmann::ordered_json json_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

}  // namespace

nlohmann::ordered_json json_of(const RankAlert& alert) {
  return {{"number", alert.number},
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
          {"value", json_of(alert.value)},
          {"history_mean", json_of(alert.history_mean)},
          {"message", alert.message}};
}

}  // namespace gradmon
