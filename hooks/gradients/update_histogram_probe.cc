// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradients/update_histogram_probe.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>
#include <utility>

#include "hooks/device/device_batch.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/optimizer_state.h"
#include "hooks/rows/wrapper_tensor.h"

namespace gradmon {
namespace {

using Values = std::optional<DeviceScalars::Values>;

bool only_zeros(std::vector<Values>::const_iterator first, std::size_t count) {
  return count > 0 && std::all_of(first, first + static_cast<std::ptrdiff_t>(count),
                                  [](const Values& one) { return one && all_zeros(*one); });
}

}  // namespace

UpdateHistogramProbe::UpdateHistogramProbe(const std::vector<WatchedTensor>& watched, GradientHooks& hooks)
    : watched_(watched), hooks_(hooks), taken_(watched.size()) {}

void UpdateHistogramProbe::begin_step(Step) { std::fill(taken_.begin(), taken_.end(), Taken{}); }

void UpdateHistogramProbe::before_update(const Update& update) {
  for (const std::size_t i : update.parameter_indices) {
    if (taken_[i].seen || !hooks_.took_part(i)) continue;
    taken_[i].seen = true;
    ParameterState state = update.state ? update.state->of(*watched_[i].tensor) : ParameterState{};
    for (auto* moment : {&state.first_moment, &state.second_moment}) {
      if (!*moment || !(*moment)->defined()) continue;
      if (Unwrapped inner = unwrapped(**moment); !inner.why.empty())
        taken_[i].why_absent = std::move(inner.why);
      *moment = watched_[i].part_of(**moment);
    }
    if (taken_[i].why_absent.empty()) read(state, taken_[i]);
  }
}

void UpdateHistogramProbe::read(const ParameterState& state, Taken& taken) {
  if (!state.first_moment || !state.second_moment || !state.adam) {
    taken.why_absent =
        "its optimizer keeps no exp_avg, exp_avg_sq, betas, eps and step that gradmon can read";
    return;
  }
  const bool to_come = !state.first_moment->defined() || !state.second_moment->defined();
  if (to_come || state.first_moment->numel() == 0) return;
  if (!state.adam->device_steps.defined() && state.adam->steps < 1) return;
  try {
    auto histograms = adam_histograms(*state.first_moment, *state.second_moment, *state.adam);
    taken.counted = histograms.has_value();
    if (histograms) {
      taken.histograms = std::move(*histograms);
    } else {
      taken.why_absent = std::move(histograms.error());
    }
  } catch (const std::exception& error) {  // Such as no memory on the device.
    taken.why_absent = first_line(error.what());
  }
}

// Waits for the device, once for all parameters.
void UpdateHistogramProbe::leave_out_zeros(RowWriter& rows) {
  DeviceBatch batch;
  std::vector<std::size_t> counts(taken_.size(), 0);
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (!taken_[i].counted) continue;
    for (const PendingScalars& one : hooks_.unless_zeros(i)) {
      batch.add(one);
      ++counts[i];
    }
  }
  const std::string why = batch.why_not_now();
  for (std::size_t i = 0; i < taken_.size() && !why.empty(); ++i) {
    if (std::exchange(taken_[i].counted, false))
      rows.count_not_applicable(Kind::update, watched_[i].target, watched_[i].name, why);
  }
  if (!why.empty()) return;
  const std::vector<Values> values = batch.resolve();
  auto next = values.begin();
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (only_zeros(next, counts[i])) taken_[i].counted = false;
    next += static_cast<std::ptrdiff_t>(counts[i]);
  }
}

void UpdateHistogramProbe::write_rows(RowWriter& rows) {
  std::vector<AdamHistograms*> counted;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    if (!taken_[i].why_absent.empty())
      rows.count_not_applicable(Kind::update, watched_[i].target, watched_[i].name, taken_[i].why_absent);
  }
  leave_out_zeros(rows);
  for (Taken& taken : taken_) {
    if (taken.counted) counted.push_back(&taken.histograms);
  }
  resolve_pending(counted);
  const auto write = [&](Kind kind, BinCounts AdamBins::*counts) {
    for (std::size_t i = 0; i < watched_.size(); ++i) {
      if (taken_[i].counted)
        rows.write_histogram(kind, watched_[i].target, taken_[i].histograms.bins.*counts);
    }
  };
  write(Kind::update, &AdamBins::update);
  write(Kind::ratio, &AdamBins::ratio);
}

}  // namespace gradmon
