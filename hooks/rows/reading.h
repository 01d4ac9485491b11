// SPDX-License-Identifier: Apache-2.0
// A watched parameter, and the statistics read from one tensor in one step.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/watched_model.h"
#include "hooks/stats/tensor_stats.h"
#include "writers/queue/record.h"

namespace gradmon {

// A parameter that the plan selects. It keeps the tensor's memory alive while the plan is in force.
struct WatchedTensor {
  HeldTensor tensor;
  std::string name;                                  // in the rows
  std::uint32_t target = 0;                          // the stream's id of the name
  std::uint64_t index = 0;                           // index in the model's list
  std::array<Readers, kKinds> readers{};             // of its rows, by Kind
  std::function<MainGradient()> main_gradient = {};  // WatchedParameter::main_gradient
  std::shared_ptr<const ParameterSharding> sharding = {};
  std::function<std::function<void()>(std::function<void()>)> hook_first =
      {};  // WatchedParameter::hook_first
  UnreducedSource gradient_source = UnreducedSource::accumulator;
  int vpp_stage = 0;

  Readers readers_for(Kind kind) const { return readers[static_cast<std::size_t>(kind)]; }
  // The readable elements of this parameter in `whole`, which is the optimizer's parameter, its gradient or
  // its moment. Undefined if there are none. No copy.
  at::Tensor part_of(const at::Tensor& whole) const;
};

// The plan's way to read tensors in a step. A number is `eps`: tensors are then read whole.
struct ReadOptions {
  double eps = 1e-8;         // threshold of Op::zeros
  std::uint32_t sample = 1;  // Sampling::group
  std::int64_t step = 0;     // Sampling::step

  ReadOptions() = default;
  ReadOptions(double threshold, std::uint32_t blocks = 1) : eps(threshold), sample(blocks) {}

  ReadOptions whole() const { return eps; }
  // For the parameter's rows of the kind. Norms of scalars and the flight recorder have whole tensors.
  ReadOptions for_rows(const WatchedTensor& parameter, Kind kind) const {
    return (parameter.readers_for(kind) & (kForNorms | kForFlight)) == 0 ? *this : whole();
  }
};

// Orders readings, even across threads: nanoseconds of the steady clock. Any thread.
std::int64_t reading_time() noexcept;

// Reused in every step, so that a step does not allocate.
struct Reading {
  bool has_value = false;
  std::int64_t read_at = 0;  // reading_time() when read() began
  TensorStats stats;
  double scale = 1;      // factor that the tensor contains; rows have the values without it
  c10::DimVector sizes;  // in place: most readings are of tensors that are not in the cache
  ScopeText scope;       // null: the scope of the row's target and kind
  // Not null: a device is still computing `stats.values` (NaN until then), of the tensor as it was in
  // read(). RowWriter fetches the values of all rows; resolve_pending() waits for those of its readings.
  std::shared_ptr<const DeviceScalars> pending;
  std::string why;  // why the tensor is not applicable; "": meta, undefined or without storage
  std::shared_ptr<const Reading> of_scale;  // the tensor's scale; null: it has none

  // Reads the tensor, or queues the reading on its device. If the tensor wraps another (DTensor), reads the
  // wrapped one, or its numbers of low precision, and their scale. A tensor that cannot be read (for example
  // a nested tensor), or that is written during the reading, is not applicable: no tensor trips the fuse.
  // `eps` refers to the values without `scale`; `scale` is > 0. Reads a sample of a large tensor in CPU
  // memory if `options` ask for it, chosen by `name`.
  void read(const at::Tensor& tensor, const ReadOptions& options, const std::string& name, HookFuse& fuse,
            double scale = 1) noexcept;
  // Same as read(), for the part of `tensor` that belongs to the parameter.
  void read_part(const WatchedTensor& parameter, const at::Tensor& tensor, const ReadOptions& options,
                 HookFuse& fuse, double scale = 1) noexcept;
  // Marks the reading as not applicable: the tensor exists, but its values cannot be read.
  void mark_not_applicable(std::string reason) noexcept;

 private:
  void read_plain(const at::Tensor& tensor, const ReadOptions& options, std::string_view name);
  void read_values(const ScaledValues& values, double eps);
  void take(tl::expected<StartedStats, std::string> taken, at::IntArrayRef sizes_of_it);
};

void forget(std::vector<Reading>& readings);
// Waits for the pending values.
void resolve_pending(const std::vector<Reading*>& readings);

// Combines the readings of several tensors into one row. Combines each statistic as its Fold in kStatistics
// says: least min, greatest max, root of the summed squared norms, means and zeros weighted by elements, sum
// of the nans. A NaN gives NaN. Shape and type are the last reading's, the time is the first reading's.
// Ignores absent and empty readings. If a reading is not applicable, the result is not applicable. The values
// of a `pending` reading are NaN.
Reading folded(const std::vector<Reading>& readings);

}  // namespace gradmon
