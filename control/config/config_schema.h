// SPDX-License-Identifier: Apache-2.0
// The tables of config keys: name, field, expected value, default, meaning. The parser, the
// suggestions, CONFIG.md and the JSON Schema all use these tables. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "control/config/config.h"

namespace gradmon {

template <typename Part, typename... Value>
using FieldOf = std::variant<Value Part::*...>;

// All types that a field can have.
template <typename Part>
using Field =
    FieldOf<Part, bool, std::int64_t, double, std::chrono::milliseconds, std::optional<std::int64_t>,
            std::optional<double>, std::string, std::vector<std::string>,
            std::optional<std::vector<std::string>>, std::vector<std::int64_t>, std::vector<Op>,
            std::vector<Config::Format>, AxisOrder, CausalMask, Config::OnPartition, Config::OnOverflow,
            Config::Replicas, Config::Compress, Config::Tags, std::vector<Config::Target>,
            std::optional<Config::Selection>, Config::CcDistribution, Config::L2Targets, Config::Alert,
            std::vector<AlertRule>, std::optional<Config::OnAlert>, std::vector<Config::Scalar>,
            std::shared_ptr<const Config>>;

enum class Reload : std::uint8_t { live, restart };  // restart: a change takes effect at the next start
enum class Support : std::uint8_t {
  implemented,
  obsolete  // parsed and checked, but obsolete by `max_wait`
};
enum class Rule : std::uint8_t {
  range,          // integers: low <= x <= high; numbers: low < x <= high
  inclusive_low,  // numbers: low <= x <= high
  patterns,       // strings that are valid RE2 patterns
  zero_or_two,    // a list of zero or two time stamps
  command         // a list of at most kMaxArguments strings without NUL; the first is an absolute path
};

// `high` of an option without an upper bound: accepts any 64-bit integer and any double.
inline constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::min();  // the same for `low`

// The values that an option accepts.
struct Constraint {
  std::string_view expected;  // for error messages: "an integer >= 0"
  Rule rule = Rule::range;
  std::int64_t low = kAny;
  std::int64_t high = kUnbounded;
};

template <typename Part>
struct Option {
  std::string_view name;
  Field<Part> field;
  std::string_view expected;      // see Constraint
  std::string_view default_text;  // the default, as CONFIG.md shows it
  std::string_view meaning;
  std::int64_t low = kAny;
  std::int64_t high = kUnbounded;
  Rule rule = Rule::range;
  Reload reload = Reload::live;
  Support support = Support::implemented;

  Constraint constraint() const { return {expected, rule, low, high}; }
};

// The table of each part of the config, in the order of CONFIG.md.
const std::vector<Option<Config>>& table(const Config*);
const std::vector<Option<Config::Target>>& table(const Config::Target*);
const std::vector<Option<Config::CcDistribution>>& table(const Config::CcDistribution*);
const std::vector<Option<Config::L2Targets>>& table(const Config::L2Targets*);
const std::vector<Option<Config::Alert>>& table(const Config::Alert*);
const std::vector<Option<Config::OnAlert>>& table(const Config::OnAlert*);
template <typename Part>
const std::vector<Option<Part>>& options() {
  return table(static_cast<const Part*>(nullptr));
}

// A rule of `alert` and the `args` that it takes.
struct AlertRuleSchema {
  Anomaly anomaly;
  std::string_view meaning;
  std::vector<Option<AlertRule>> args;
  std::string_view required;  // the required argument; "": none
};
// Indexed by Anomaly.
const std::vector<AlertRuleSchema>& alert_rule_schemas();

// Names in the config file, in the order of the enumerators.
inline constexpr std::array<std::string_view, 4> kFormatNames{"csv", "tensorboard", "api", "sqlite"};
constexpr std::string_view name_of(Config::Format format) {
  return kFormatNames[static_cast<std::size_t>(format)];
}
// Indexed by Op.
inline constexpr std::array<std::string_view, kOps> kOpNames = [] {
  std::array<std::string_view, kOps> names{};
  for (std::size_t op = 0; op < kOps; ++op) names[op] = kStatistics[op].name;
  return names;
}();
// The names of a fixed choice, in the order of the enumerators.
template <typename Enum>
constexpr std::array<std::string_view, 2> names_of() {
  if constexpr (std::is_same_v<Enum, AxisOrder>) return {"s,b,h,d", "b,s,h,d"};
  if constexpr (std::is_same_v<Enum, Config::OnPartition>) return {"continue", "wait"};
  if constexpr (std::is_same_v<Enum, Config::OnOverflow>) return {"block", "drop"};
  if constexpr (std::is_same_v<Enum, Config::Replicas>) return {"all", "first"};
  if constexpr (std::is_same_v<Enum, Config::Compress>) return {"none", "zstd"};
  if constexpr (std::is_same_v<Enum, Config::Tags>) return {"gradmon", "msprobe"};
}

inline constexpr std::size_t kMaxTargets = 4096;
inline constexpr std::size_t kMaxPatterns = 256;
inline constexpr std::size_t kMaxPatternBytes = 1024;
inline constexpr std::size_t kMaxArguments = 64;
inline constexpr std::int64_t kMaxPatternMemory = std::int64_t{2}
                                                  << 20U;  // bytes, for RE2 (max_mem); bounds time too

// The candidate with the least edit distance from `name`, for suggestions; "" if all are too far.
std::string_view nearest(std::string_view name, const std::vector<std::string_view>& candidates);

// The keys with Reload::restart whose values differ.
std::vector<std::string_view> changed_restart_keys(const Config& running, const Config& wanted);

// True if `format` lists the format; true if ur_distribution has an effect: TensorBoard alone holds
// histograms.
bool writes_format(const Config& config, Config::Format format);
bool collects_histograms(const Config& config);
// True if the config asks for at least one kind of output, or for values that alert rules read.
bool collects_anything(const Config& config);

// All top-level keys as text, one line each, for `gradmonctl schema --text`.
std::string config_reference();

// JSON Schema (draft-07) of the config file, for editors, made from these tables; indented by two spaces. It
// accepts the same files as parse_config(), and some more, because a schema cannot express all rules:
// duplicate keys, documents beyond the bounds of json_text.h, invalid RE2 patterns, and a tuple index beyond
// the size of the tuple. It allows unknown keys, which are warnings in parse_config().
std::string config_json_schema();

}  // namespace gradmon
