// SPDX-License-Identifier: Apache-2.0
// The options of the config file as tables: name, field, what may stand there,
// default, meaning. Reading, checking, suggestions and the reference come from
// these tables alone. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "control/config/config.h"

namespace gradmon {

template <typename Part, typename... Value>
using FieldOf = std::variant<Value Part::*...>;

// Every type that a field of a part of the config can have.
template <typename Part>
using Field =
    FieldOf<Part, bool, std::int64_t, double, std::chrono::milliseconds, std::optional<std::int64_t>,
            std::optional<double>, std::string, std::vector<std::string>,
            std::optional<std::vector<std::string>>, std::vector<std::int64_t>, std::vector<Op>,
            std::vector<Config::Format>, AxisOrder, CausalMask, Config::OnPartition, Config::OnOverflow,
            std::vector<Config::Target>, std::optional<Config::Selection>, Config::CcDistribution,
            Config::L2Targets, Config::Alert, std::vector<Config::AlertRule>, std::optional<Config::OnAlert>,
            std::vector<Config::Scalar>, std::shared_ptr<const Config>>;

enum class Change : std::uint8_t { live, fixed };  // fixed: a change takes effect at the next start
enum class Feature : std::uint8_t {
  exists,
  missing,  // read and checked, but nothing acts on it yet
  replaced  // read and checked, but `max_wait` has taken its place
};
enum class Rule : std::uint8_t {
  range,       // integers: low ... high; numbers: above low, up to high
  from_low,    // numbers: low itself too
  patterns,    // strings that RE2 compiles
  none_or_two  // a list of no or two strings
};

template <typename Part>
struct Option {
  std::string_view name;
  Field<Part> field;
  std::string_view expected;  // as errors say it: "an integer >= 0"
  std::string_view fallback;  // the default, as the reference says it
  std::string_view meaning;
  Feature feature = Feature::exists;
  Change change = Change::live;
  Rule rule = Rule::range;
  std::int64_t low = std::numeric_limits<std::int64_t>::min();
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
};

// The table of one part of the config, in the order of the reference.
template <typename Part>
const std::vector<Option<Part>>& options();
template <>
const std::vector<Option<Config>>& options<Config>();
template <>
const std::vector<Option<Config::Target>>& options<Config::Target>();
template <>
const std::vector<Option<Config::CcDistribution>>& options<Config::CcDistribution>();
template <>
const std::vector<Option<Config::L2Targets>>& options<Config::L2Targets>();
template <>
const std::vector<Option<Config::Alert>>& options<Config::Alert>();
template <>
const std::vector<Option<Config::OnAlert>>& options<Config::OnAlert>();

// The names that a value can have in the file, in the order of the enumerators.
inline constexpr std::array<std::string_view, 4> kFormatNames{"csv", "tensorboard", "api", "sqlite"};
constexpr std::string_view name_of(Config::Format format) {
  return kFormatNames[static_cast<std::size_t>(format)];
}
// By Op.
inline constexpr std::array<std::string_view, kOps> kOpNames = [] {
  std::array<std::string_view, kOps> names{};
  for (std::size_t op = 0; op < kOps; ++op) names[op] = kStatistics[op].name;
  return names;
}();
inline constexpr std::array<std::string_view, 2> kAxisOrderNames{"s,b,h,d", "b,s,h,d"};
inline constexpr std::array<std::string_view, 2> kOnPartitionNames{"continue", "wait"};
inline constexpr std::array<std::string_view, 2> kOnOverflowNames{"block", "drop"};
inline constexpr std::array<std::string_view, 2> kAlertRuleNames{"AnomalyTurbulence", "AnomalyNan"};

inline constexpr std::size_t kMaxTargets = 4096;
inline constexpr std::size_t kMaxPatterns = 256;
inline constexpr std::size_t kMaxPatternBytes = 1024;
inline constexpr std::int64_t kMaxPatternMemory = std::int64_t{2}
                                                  << 20U;  // bytes, as RE2 counts; bounds time too

// The candidate that `name` is most likely a slip of; "" where none is near.
std::string_view nearest(std::string_view name, const std::vector<std::string_view>& candidates);

// The keys that are fixed at start and differ.
std::vector<std::string_view> changed_fixed_keys(const Config& running, const Config& wanted);

// For people: a table of all keys, one line each.
std::string config_reference();

}  // namespace gradmon
