// SPDX-License-Identifier: Apache-2.0
// Computes the training scalars of a step from the values that the program reports and from measured
// values. Pure, except that it interns names.
//
// A value that the program reports under a name replaces the value that is computed here:
//   iteration-time         seconds from the begin to the end of the step
//   batch-size             samples of the step, over all ranks
//   throughput             samples per second and device
//   throughput_linearity   throughput over the baseline
//   B-samples-per-day      throughput of all devices, in 1e9 samples per day
//   device_local_loss      sum of the local_loss reported in the step
//   grad-norm              over all parameters, of the gradients as the optimizer uses them
//   device_local_norm      over all parameters, of this rank's gradients before reduction
//   weight_norm            over all parameters, after the update
//   local_norm/NAME        of this rank's gradient of a parameter before reduction
//   adam_m_norm/NAME, adam_v_norm/NAME   of a parameter's moments before the update
//   expert_load/LAYER/I    share of the layer's tokens that went to expert I
// A norm over all parameters is the root of the sum of squares over the parameters that this rank
// holds; if one of them could not be read, it cannot be computed. A scalar that cannot be computed in a step
// has no row.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/config/config.h"
#include "writers/queue/record.h"

namespace gradmon {

enum class NormOf : std::uint8_t { each_parameter, all_parameters };
using KindSet = std::uint32_t;  // 1 << Kind
inline constexpr KindSet kAllKinds = ~KindSet{0};
constexpr KindSet bit_of(Kind kind) { return KindSet{1} << static_cast<unsigned>(kind); }

// One row: a scalar, or a scalar's value for one parameter or expert.
struct ScalarRow {
  std::size_t requested = 0;  // index into Settings::requested
  std::uint32_t name = 0;     // interned: "loss", "local_norm/fc1.weight"
  double value = 0;
};

// Training thread.
class ScalarBoard {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Settings {
    std::vector<Config::Scalar> requested;  // only these are computed
    std::optional<double> throughput_baseline;
    int devices = 1;
  };
  struct Names {
    std::function<std::uint32_t(const std::string&)> intern;
    std::function<std::string(std::uint32_t)> parameter;  // name of a Record::target, with its chunk
  };

  ScalarBoard(Settings settings, Names names);

  const std::vector<Config::Scalar>& requested() const { return settings_.requested; }
  // The kinds of record whose norms the configured scalars need.
  KindSet kinds(NormOf of) const;

  // `samples`: seen by all ranks so far; 0 if the program does not report it.
  void begin_step(TimePoint now, std::int64_t samples);
  void report(std::string_view name, double value);
  void count_experts(std::string_view layer, const std::vector<std::int64_t>& tokens);
  void take_norm(NormOf of, Kind kind, std::uint32_t parameter, double norm);
  // A tensor whose norm is needed could not be read in this step.
  void miss_norm(NormOf of, Kind kind) noexcept;
  // Makes the step's rows().
  void end_step(TimePoint now, std::int64_t samples);
  // Holds the last ended step, in the order of Settings::requested, until the next end_step().
  const std::vector<ScalarRow>& rows() const { return rows_; }
  // Returns true if report_late() may still add one of them: a scalar without a value, or one that replaced a
  // computed value late in an earlier step.
  bool awaits() const;
  // A value of the last ended step; a second one is ignored. False: the program reported one in the step.
  bool report_late(std::string_view name, double value);
  // The rows() are final.
  void close() { awaited_.assign(awaited_.size(), false); }

  // The configured scalars without a value in any step so far.
  std::vector<std::string> without_value() const;

 private:
  struct ParameterNorm {
    Kind kind;
    std::uint32_t parameter;
    double norm;
  };

  void append_rows(std::size_t requested);
  std::optional<double> single_value(const std::string& name) const;
  std::optional<double> timed_value(const std::string& name) const;
  void add(std::size_t requested, std::uint32_t name, double value);
  std::uint32_t name_of_norm(std::size_t requested, std::uint32_t parameter);

  // Constant after construction.
  const Settings settings_;
  const Names names_;
  std::map<std::string, std::size_t, std::less<>> index_by_name_;  // index in `requested`, by name
  std::vector<std::uint32_t> ids_;                                 // interned names of `requested`

  std::map<std::pair<std::size_t, std::uint32_t>, std::uint32_t> norm_names_;
  std::vector<bool> had_value_;
  std::vector<bool> comes_late_;  // replaced a computed value late
  // These four hold the last ended step.
  std::vector<bool> known_;      // reported by the program
  std::vector<bool> came_late_;  // by report_late()
  std::vector<bool> awaited_;
  std::vector<ScalarRow> rows_;
  // The current step.
  TimePoint began_;
  double seconds_ = 0;
  std::int64_t samples_before_ = 0;
  std::int64_t samples_ = 0;
  std::vector<std::optional<double>> reported_;
  std::optional<double> local_loss_sum_;
  std::vector<ParameterNorm> norms_;
  std::map<Kind, double> squares_;
  KindSet partial_ = 0;  // kinds of squares_ that lack a parameter
  std::map<std::string, std::vector<std::int64_t>, std::less<>> experts_;
};

}  // namespace gradmon
