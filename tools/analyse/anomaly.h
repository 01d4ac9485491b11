// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradmon {

// An alert in a dump `anomaly_detected/rank{R}/anomaly.json`, of gradmon or of msprobe. A value.
struct Anomaly {
  std::int64_t rank = 0;
  std::int64_t step = 0;
  std::int64_t micro_step = 0;
  std::int64_t pp_stage = 0;
  std::int64_t vpp_stage = 0;
  std::int64_t call_id = 0;
  std::string tag_name;
  std::string message;
  nlohmann::ordered_json group_mates;  // as in the dump, keys sorted; null: none

  std::string key;  // in the dump: "0:fc1.input:0/rank0/actv_step_2_call_3_norm"; of msprobe without the op
};

// One entry of a dump. Missing fields have the values above, as in msprobe. The error names the field and its
// expected value.
tl::expected<Anomaly, std::string> read_anomaly(const std::string& key, const nlohmann::json& entry);

// The order of the calls, as in msprobe's anomaly_processor: step, micro step, phase of the last part of the
// tag (unknown, forward, backward, optimizer), model chunk and pipeline stage (rising in forward, else
// falling), call id. Anomalies that are equal in all these keep their order.
bool happened_before(const Anomaly& a, const Anomaly& b);

// The first `count` anomalies, in that order.
std::vector<Anomaly> first_of(std::vector<Anomaly> anomalies, std::size_t count);

// anomaly_analyse.json with msprobe's bytes: an object by key in the order of the list.
std::string analyse_json(const std::vector<Anomaly>& anomalies);

}  // namespace gradmon
