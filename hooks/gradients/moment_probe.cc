// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradients/moment_probe.h"

#include <algorithm>
#include <string>

#include "hooks/rows/optimizer_state.h"

namespace gradmon {

MomentProbe::MomentProbe(const std::vector<WatchedTensor>& watched, GradientHooks& hooks, double eps,
                         HookFuse& fuse)
    : watched_(watched),
      hooks_(hooks),
      eps_(eps),
      fuse_(fuse),
      keeps_(watched.size()),
      first_(watched.size()),
      second_(watched.size()) {}

void MomentProbe::begin_step(Step) {
  std::fill(keeps_.begin(), keeps_.end(), Keeps{});
  forget(first_);
  forget(second_);
}

void MomentProbe::before_update(const Update& update) {
  for (const std::size_t i : update.parameter_indices) {
    if (keeps_[i].seen || !hooks_.took_part(i)) continue;
    const WatchedTensor& parameter = watched_[i];
    const ParameterState state = update.state ? update.state->of(*parameter.tensor) : ParameterState{};
    keeps_[i] = {true, state.first_moment.has_value(), state.second_moment.has_value()};
    if (state.first_moment && state.first_moment->defined())
      first_[i].read_part(parameter, *state.first_moment, eps_, fuse_);
    if (state.second_moment && state.second_moment->defined())
      second_[i].read_part(parameter, *state.second_moment, eps_, fuse_);
  }
}

void MomentProbe::write_rows(RowWriter& rows) {
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const Keeps& keeps = keeps_[i];
    if (!keeps.seen || (keeps.first && keeps.second)) continue;
    const bool neither = !keeps.first && !keeps.second;
    const char* what = neither ? "exp_avg or exp_avg_sq" : keeps.first ? "exp_avg_sq" : "exp_avg";
    const std::string why = std::string("its optimizer keeps no ") + what + " that gradmon can read";
    const Kind kind = keeps.first ? Kind::exp_avg_sq : Kind::exp_avg;
    rows.count_not_applicable(kind, watched_[i].target, watched_[i].name, why);
    if (neither) rows.note_reason(Kind::exp_avg_sq, watched_[i].target, why);
  }
  const auto unless_zeros = [&](std::size_t i) { return hooks_.unless_zeros(i); };
  write_in_order(rows, Kind::exp_avg, watched_, first_, unless_zeros);
  write_in_order(rows, Kind::exp_avg_sq, watched_, second_, unless_zeros);
}

}  // namespace gradmon
