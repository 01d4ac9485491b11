// SPDX-License-Identifier: Apache-2.0
// The user's config file as a value. Each field has the name and the default of its key. Only parse_config()
// makes a Config, and it never changes afterwards, so any thread may read it. CONFIG.md explains the keys.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "control/alert_rule.h"
#include "control/vocabulary.h"

namespace gradmon {

// The default of `collect_times`: without a limit.
inline constexpr std::int64_t kUntilOff = 100'000'000;

struct Config {
  enum class Format : std::uint8_t { csv, tensorboard, api, sqlite };
  enum class OnPartition : std::uint8_t { carry_on, wait };  // carry_on is "continue" in the file
  enum class OnOverflow : std::uint8_t { block, drop };
  enum class Replicas : std::uint8_t { all, first };
  enum class Compress : std::uint8_t { none, zstd };
  enum class Tags : std::uint8_t { gradmon, msprobe };

  // One tensor of a module's input or output: the value itself (tuple_size 0), or element `index` of a
  // tuple of `tuple_size` elements.
  struct Selection {
    std::int64_t tuple_size = 0;
    std::int64_t index = 0;
    auto tied() const { return std::tie(tuple_size, index); }
  };
  struct Target {
    std::string name;
    std::optional<Selection> input, output, input_grad, output_grad;
    auto tied() const { return std::tie(name, input, output, input_grad, output_grad); }
  };
  struct CcDistribution {
    bool enable = false;
    std::vector<std::string> cc_codeline;  // empty: all
    bool cc_pre_hook = false;
    bool cc_log_only = false;
    auto tied() const { return std::tie(enable, cc_codeline, cc_pre_hook, cc_log_only); }
  };
  struct L2Targets {
    std::vector<std::string> attention_hook;              // empty: none
    std::optional<std::vector<std::string>> linear_hook;  // absent: none; empty: all with a 2-D weight
    std::vector<std::string> moe_router_weight_hook;      // empty: none
    std::vector<std::string> moe_router_logit_hook;       // empty: none
    auto tied() const {
      return std::tie(attention_hook, linear_hook, moe_router_weight_hook, moe_router_logit_hook);
    }
  };
  struct Alert {
    std::vector<AlertRule> rules;  // at most kMostAlertRules; the first that fires for a value is reported
    bool dump = false;
    auto tied() const { return std::tie(rules, dump); }
  };
  struct OnAlert {
    std::shared_ptr<const Config> collect;  // null: an alert leaves the collection unchanged
    std::int64_t times = 1;
    std::chrono::milliseconds cooldown{60'000};
    std::vector<std::string> exec;  // empty, or a program's absolute path and its arguments
    auto tied() const { return std::tie(collect, times, cooldown, exec); }
  };
  struct Scalar {
    std::string name;
    bool log = false;
    bool records = false;
    auto tied() const { return std::tie(name, log, records); }
  };

  // Targets.
  std::vector<Target> targets;            // in the file's order; empty: everything
  std::vector<std::string> target_regex;  // RE2 patterns; each one compiles
  bool invert = false;
  std::vector<std::int64_t> module_ranks;  // empty: all

  // Steps.
  bool dynamic_on = false;
  std::int64_t collect_times = kUntilOff;
  std::int64_t start_step = 0;
  std::int64_t step_interval = 1;

  // Kinds of records.
  bool print_struct = false;
  bool xy_distribution = false;
  bool all_xy = false;
  bool forward_only = false;
  bool backward_only = false;
  bool wg_distribution = false;
  bool monitor_mbs_grad = false;
  bool mv_distribution = false;
  bool param_distribution = false;
  bool ur_distribution = false;
  bool mg_direction = false;
  CcDistribution cc_distribution;
  bool stack_info = false;
  L2Targets l2_targets;
  bool recording_l2_features = false;
  AxisOrder sa_order = AxisOrder::sbhd;
  CausalMask sa_causal = CausalMask::automatic;
  Alert alert;

  // Statistics and output.
  std::vector<Format> format{Format::csv};  // never empty, no duplicates
  std::vector<Op> ops{Op::norm};            // never empty, no duplicates, in the file's order
  double eps = 1e-8;
  std::int64_t ndigits = 6;
  std::optional<std::int64_t> digits;  // none: ndigits counts
  Compress compress = Compress::none;
  std::int64_t step_count_per_record = 1;
  std::vector<std::string> append_output;  // empty, or two time stamps
  bool squash_name = true;
  Replicas replicas = Replicas::all;
  Tags tags = Tags::gradmon;
  bool reuse_readings = false;
  std::int64_t sample = 1;  // blocks of a group, of which one is read; 1: tensors are read whole

  // Keys of gradmon's own behaviour.
  std::optional<std::int64_t> lookahead_steps;  // none: chosen by measurement
  std::chrono::milliseconds max_wait{2'000};    // longest wait of training for a verdict
  std::chrono::milliseconds fence_timeout{30'000};
  OnPartition on_partition = OnPartition::carry_on;
  std::int64_t queue_capacity = 65'536;  // records
  OnOverflow on_overflow = OnOverflow::block;
  std::optional<double> max_overhead;  // share of the step time; none: no limit
  std::int64_t keep_last = 0;          // steps
  std::optional<OnAlert> on_alert;
  std::vector<Scalar> scalars;                // in the file's order
  std::optional<double> throughput_baseline;  // samples per second per device
  bool write_back = true;
};

// Equality of the parts of a Config.
template <typename Part, typename = decltype(std::declval<const Part&>().tied())>
bool operator==(const Part& a, const Part& b) {
  return a.tied() == b.tied();
}

}  // namespace gradmon
