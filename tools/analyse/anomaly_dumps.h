// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
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

// The selection to read from the dumps below a directory.
struct AnomalyRequest {
  std::size_t count = 8;            // at least 1: keep the first ones
  std::vector<std::int64_t> steps;  // empty: all
};

struct AnomalyDumps {
  std::vector<Anomaly> first;  // in the order of happened_before()
  std::size_t anomalies = 0;   // of those steps, in all dumps
  std::size_t dumps = 0;       // files read
  std::vector<std::string>
      left_out;  // "FILE: KEY: reason" of unreadable entries; at most kMessages, and a count
};

// Reads `anomaly.json` in each directory of `directory` (rank0, rank1, …), ranks ascending. Holds one dump,
// `count` anomalies and 100,000 more in memory. The error: `directory` cannot be read or has no dump.
tl::expected<AnomalyDumps, std::string> read_anomaly_dumps(const std::filesystem::path& directory,
                                                           const AnomalyRequest& request);

}  // namespace gradmon
