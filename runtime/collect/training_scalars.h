// SPDX-License-Identifier: Apache-2.0
// The training scalars of a step. ScalarBoard computes them from the values that the program reports and from
// measured values, scalar_line() prints them, and TrainingScalars measures and writes them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/config/config.h"
#include "control/step.h"
#include "hooks/hook_set.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/row_writer.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record.h"
#include "writers/queue/writer_thread.h"
#include "writers/sinks/earlier_output.h"

namespace gradmon {

enum class NormOf : std::uint8_t { each_parameter, all_parameters };

// One row: a scalar, or a scalar's value for one parameter or expert.
struct ScalarRow {
  std::size_t requested = 0;  // index into Settings::requested
  std::uint32_t name = 0;     // interned: "loss", "local_norm/fc1.weight"
  double value = 0;
};

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
//
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

struct NamedScalar {
  std::string name;
  double value = 0;
};

// "rank 1: step 12, 3072 samples: loss 2.34567, grad-norm 0.12". Skips the rank if only one exists, and the
// samples if they are 0. Numbers as in CSV, with six decimals; control characters in names become '?'.
std::string scalar_line(Rank rank, int world_size, Step step, std::int64_t samples,
                        const std::vector<NamedScalar>& scalars);

// Writes the training scalars of one plan to the log, to records or to both, as configured. Training thread,
// in its steps. Only the constructor throws; the first failure trips a fuse, and nothing more is collected.
class TrainingScalars {
 public:
  // `between`: steps that only the flight recorder needs. They have no log line, and their rows are
  // kForFlight.
  enum class Steps : std::uint8_t { collected, between };
  struct Context {
    Rank rank;
    int world_size = 1;
    std::shared_ptr<NameTable> names;
    RecordStream& stream;                               // `stream` and `writer` must outlive this object
    WriterThread& writer;                               // writes the log lines
    std::shared_ptr<ResumedSamples> samples = nullptr;  // null: the output is new
    Steps steps = Steps::collected;
  };

  TrainingScalars(const Config& config, Revision revision, Context context);

  // Its kinds() are those whose norms it needs from a HookSet (HookSettings::each_norm, whole_norm).
  const ScalarBoard& board() const { return board_; }

  // `samples`: seen by all ranks so far; 0 if the program does not report it.
  void begin_step(Step step, std::int64_t samples) noexcept;
  void report(std::string_view name, double value) noexcept;
  void count_experts(std::string_view layer, const std::vector<std::int64_t>& tokens) noexcept;
  // Takes the norm from a record whose readers include norms.
  void on_record(const Record& record) noexcept;
  // Call it for each tensor that the hooks could not read.
  void on_missing_row(Kind kind) noexcept;
  // Call it after the hooks have ended the step. Writes its rows unless awaits().
  void end_step(std::int64_t samples) noexcept;
  // Returns true if the rows of the last ended step wait for values that may be reported late.
  bool awaits() const noexcept { return ended_ && board_.awaits(); }
  // Same as in ScalarBoard. Call settle() once no value is awaited.
  bool report_late(std::string_view name, double value) noexcept;
  // Writes the waiting rows, before the next end_step(). drop() discards them.
  void settle() noexcept;
  void drop() noexcept;

  const HookFuse& fuse() const { return fuse_; }
  // A warning for each configured scalar without a value so far; empty before the end of the first step.
  std::vector<std::string> warnings() const;

 private:
  struct Ended {
    Step step;
    std::int64_t samples = 0;
  };
  void write_rows(const Ended& ended);
  void write_log(const Ended& ended);

  const Context context_;
  HookFuse fuse_;
  ScalarBoard board_;
  RowWriter rows_;
  Step step_;
  std::optional<Ended> ended_;  // the step whose rows wait
  bool ended_one_ = false;
};

}  // namespace gradmon
