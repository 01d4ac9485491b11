// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/parameter_probes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "hooks/device/device_fetch.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/optimizer_state.h"
#include "hooks/rows/read_ahead.h"
#include "hooks/rows/wrapper_tensor.h"
#include "hooks/stats/moment_stats.h"

namespace gradmon {
namespace {

using Watched = std::vector<WatchedTensor>;
using Values = std::optional<DeviceScalars::Values>;

ParameterState state_before(const Update& update, const WatchedTensor& parameter) {
  return update.state ? update.state->of(*parameter.tensor) : ParameterState{};
}

// The readers of any of the kinds.
Readers readers_for(const Watched& watched, std::initializer_list<Kind> kinds) {
  Readers readers = 0;
  for (const WatchedTensor& parameter : watched) {
    for (const Kind kind : kinds) readers |= parameter.readers_for(kind);
  }
  return readers;
}

// A probe that reads the kinds for the readers that are active in the step.
class ParameterProbe : public Probe {
 public:
  ParameterProbe(const Watched& watched, std::initializer_list<Kind> kinds, ReadOptions options = {})
      : watched_(watched), options_(options), readers_(readers_for(watched, kinds)) {}
  Readers readers() const override { return readers_; }

 protected:
  // Readers of this step; 0: the parameter is not read.
  Readers active(std::size_t parameter, Kind kind) const {
    return watched_[parameter].readers_for(kind) & active_;
  }

  const Watched& watched_;
  ReadOptions options_;
  Readers active_ = 0;

 private:
  const Readers readers_;
};

class GradientProbe : public ParameterProbe {
 public:
  GradientProbe(const Watched& watched, GradientHooks& hooks, ReadOptions options, HookFuse& fuse)
      : ParameterProbe(watched, {Kind::grad_reduced}, options),
        hooks_(hooks),
        fuse_(fuse),
        reduced_(watched.size()) {}

  bool reads(UpdateReads reads) const override { return reads == UpdateReads::gradients; }

  void begin_step(Step step, Readers active) override {
    active_ = active;
    options_.step = step.value;
    forget(reduced_);
  }

  void before_update(const Update& update) override {
    const double scale = update.state ? update.state->gradient_scale() : 1;
    const UpdateReads reads = update.reads();  // at the end of an iteration zero_grad() may have run first
    const bool at_the_end = reads == UpdateReads::gradients || reads == UpdateReads::everything_left_out;
    for (const std::size_t i : update.parameter_indices) {
      ask_for_gradients_after(watched_, i);
      if (i + 4 < reduced_.size()) ask_for(&reduced_[i + 4], sizeof(Reading));
      reduced_[i].has_value = false;
      if (active(i, Kind::grad_reduced) == 0 || !hooks_.took_part(i)) continue;
      const at::Tensor gradient = update.gradient_of(*watched_[i].tensor);
      const ReadOptions options =
          at_the_end ? options_.whole() : options_.for_rows(watched_[i], Kind::grad_reduced);
      if (gradient.defined()) reduced_[i].read_part(watched_[i], gradient, options, fuse_, scale);
      if (at_the_end && reduced_[i].has_value && !reduced_[i].pending && has_only_zeros(reduced_[i].stats))
        reduced_[i].mark_not_applicable(
            "zeros at the end of an iteration without a step(): zero_grad() came first");
    }
  }

  void write_rows(RowWriter& rows) override {
    write_in_order(rows, Kind::grad_reduced, watched_, reduced_,
                   [&](std::size_t i) { return hooks_.unless_zeros(i); });
  }

 private:
  GradientHooks& hooks_;
  HookFuse& fuse_;
  std::vector<Reading> reduced_;
};

class MomentProbe : public ParameterProbe {
 public:
  MomentProbe(const Watched& watched, GradientHooks& hooks, ReadOptions options, HookFuse& fuse)
      : ParameterProbe(watched, {Kind::exp_avg, Kind::exp_avg_sq}, options),
        hooks_(hooks),
        fuse_(fuse),
        keeps_(watched.size()),
        first_(watched.size()),
        second_(watched.size()) {}

  void begin_step(Step step, Readers active) override {
    active_ = active;
    options_.step = step.value;
    std::fill(keeps_.begin(), keeps_.end(), Keeps{});
    forget(first_);
    forget(second_);
  }

  void before_update(const Update& update) override {
    for (const std::size_t i : update.parameter_indices) {
      const bool first = active(i, Kind::exp_avg) != 0, second = active(i, Kind::exp_avg_sq) != 0;
      if (keeps_[i].seen || !(first || second) || !hooks_.took_part(i)) continue;
      const WatchedTensor& parameter = watched_[i];
      const ParameterState state = state_before(update, parameter);
      keeps_[i] = {true, state.first_moment.has_value(), state.second_moment.has_value()};
      if (first && state.first_moment && state.first_moment->defined())
        first_[i].read_part(parameter, *state.first_moment, options_.for_rows(parameter, Kind::exp_avg),
                            fuse_);
      if (second && state.second_moment && state.second_moment->defined())
        second_[i].read_part(parameter, *state.second_moment, options_.for_rows(parameter, Kind::exp_avg_sq),
                             fuse_);
    }
  }

  void write_rows(RowWriter& rows) override {
    for (std::size_t i = 0; i < watched_.size(); ++i) {
      const Keeps& keeps = keeps_[i];
      if (!keeps.seen || (keeps.first && keeps.second) || (active(i, Kind::exp_avg) & kForRows) == 0)
        continue;
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

 private:
  // The moments that the optimizer keeps of a parameter, or will keep.
  struct Keeps {
    bool seen = false;  // in this step
    bool first = false;
    bool second = false;
  };

  GradientHooks& hooks_;
  HookFuse& fuse_;
  std::vector<Keeps> keeps_;
  std::vector<Reading> first_, second_;
};

class WeightProbe : public ParameterProbe {
 public:
  WeightProbe(const Watched& watched, ReadOptions options, HookFuse& fuse)
      : ParameterProbe(watched, {Kind::param_origin, Kind::param_updated}, options),
        fuse_(fuse),
        origins_(watched.size()),
        updates_(watched.size()) {}

  bool reads(UpdateReads reads) const override { return reads == UpdateReads::weights; }

  void begin_step(Step step, Readers active) override {
    active_ = active;
    options_.step = step.value;
    forget(origins_);
    forget(updates_);
  }

  void before_update(const Update& update) override {
    for (const std::size_t i : update.parameter_indices) {
      if (active(i, Kind::param_origin) != 0 && !origins_[i].has_value)
        read(i, update, Kind::param_origin, origins_[i]);
    }
  }

  void after_update(const Update& update) override {
    for (const std::size_t i : update.parameter_indices) {
      if (active(i, Kind::param_updated) != 0) read(i, update, Kind::param_updated, updates_[i]);
    }
  }

  void write_rows(RowWriter& rows) override {
    write_in_order(rows, Kind::param_origin, watched_, origins_);
    write_in_order(rows, Kind::param_updated, watched_, updates_);
  }

 private:
  void read(std::size_t index, const Update& update, Kind kind, Reading& reading) {
    const WatchedTensor& parameter = watched_[index];
    const at::Tensor value = update.value_of(*parameter.tensor);
    if (value.defined()) reading.read_part(parameter, value, options_.for_rows(parameter, kind), fuse_);
  }

  HookFuse& fuse_;
  std::vector<Reading> origins_, updates_;
};

class SignAgreementProbe : public ParameterProbe {
 public:
  SignAgreementProbe(const Watched& watched, GradientHooks& hooks)
      : ParameterProbe(watched, {Kind::other}), hooks_(hooks), agreements_(watched.size()) {}

  void begin_step(Step, Readers active) override {
    active_ = active;
    std::fill(agreements_.begin(), agreements_.end(), Agreement{});
  }

  void before_update(const Update& update) override {
    for (const std::size_t i : update.parameter_indices) agreements_[i] = compare(i, update);
  }

  void write_rows(RowWriter& rows) override {
    for (std::size_t i = 0; i < watched_.size(); ++i) {
      const WatchedTensor& parameter = watched_[i];
      const auto& [share, read_at, why] = agreements_[i];
      if (share)
        rows.write({Kind::other, parameter.target, parameter.index, 0, read_at},
                   {{Column::mg_direction, share->value}}, share->pending, parameter.name,
                   hooks_.unless_zeros(i));
      if (!why.empty()) rows.count_not_applicable(Kind::other, parameter.target, parameter.name, why);
    }
  }

 private:
  struct Agreement {
    std::optional<SignAgreement> share = {};
    std::int64_t read_at = 0;
    std::string why = {};  // the reason why a parameter that took part has none; "": it has no momentum yet
  };

  Agreement compare(std::size_t index, const Update& update) {
    const WatchedTensor& parameter = watched_[index];
    if (active(index, Kind::other) == 0 || !hooks_.took_part(index)) return {};
    const at::Tensor gradient = update.gradient_of(*parameter.tensor);
    if (!gradient.defined()) return {};
    const ParameterState state = state_before(update, parameter);
    const std::optional<at::Tensor>& momentum = state.first_moment;
    if (!momentum) return {{}, 0, "its optimizer keeps no momentum"};
    if (!momentum->defined() || gradient.numel() == 0) return {};
    const at::Tensor part = parameter.part_of(gradient);
    if (part.defined() && part.numel() == 0) return {};  // another rank holds all of it
    if (Unwrapped inner = unwrapped(*momentum); !inner.why.empty()) return {{}, 0, std::move(inner.why)};
    const std::int64_t read_at = reading_time();
    try {
      const auto share =
          sign_agreement(part, parameter.part_of(*momentum), state.maximize ? Sense::negated : Sense::same);
      if (share) return {share, read_at, {}};
      return {{}, 0, "gradient and momentum differ in size, or are complex, sparse, freed or captured"};
    } catch (const std::exception& error) {  // Such as no memory on the device.
      return {{}, 0, first_line(error.what())};
    }
  }

  GradientHooks& hooks_;
  std::vector<Agreement> agreements_;
};

class UpdateHistogramProbe : public ParameterProbe {
 public:
  UpdateHistogramProbe(const Watched& watched, GradientHooks& hooks)
      : ParameterProbe(watched, {Kind::update}), hooks_(hooks), taken_(watched.size()) {}

  void begin_step(Step, Readers active) override {
    active_ = active;
    std::fill(taken_.begin(), taken_.end(), Taken{});
  }

  void before_update(const Update& update) override {
    for (const std::size_t i : update.parameter_indices) {
      if (taken_[i].seen || active(i, Kind::update) == 0 || !hooks_.took_part(i)) continue;
      taken_[i].seen = true;
      ParameterState state = state_before(update, watched_[i]);
      for (auto* moment : {&state.first_moment, &state.second_moment}) {
        if (!*moment || !(*moment)->defined()) continue;
        if (Unwrapped inner = unwrapped(**moment); !inner.why.empty())
          taken_[i].why_absent = std::move(inner.why);
        *moment = watched_[i].part_of(**moment);
      }
      if (taken_[i].why_absent.empty()) read(state, taken_[i]);
    }
  }

  void write_rows(RowWriter& rows) override {
    for (std::size_t i = 0; i < watched_.size(); ++i) {
      if (!taken_[i].why_absent.empty()) count_absent(rows, i, taken_[i].why_absent);
    }
    leave_out_zeros(rows);
    std::vector<AdamHistograms*> counted;
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

 private:
  struct Taken {
    bool seen = false;
    bool counted = false;
    std::string why_absent;  // "": counted, or there are no moments yet
    AdamHistograms histograms;
  };

  static void read(const ParameterState& state, Taken& taken) {
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

  void count_absent(RowWriter& rows, std::size_t i, const std::string& why) {
    rows.count_not_applicable(Kind::update, watched_[i].target, watched_[i].name, why);
  }

  // Waits for the device, once for all parameters.
  void leave_out_zeros(RowWriter& rows) {
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
      if (std::exchange(taken_[i].counted, false)) count_absent(rows, i, why);
    }
    if (!why.empty()) return;
    const std::vector<Values> values = batch.resolve();
    auto next = values.begin();
    const auto is_zeros = [](const Values& one) { return one && all_zeros(*one); };
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      const auto end = next + static_cast<std::ptrdiff_t>(counts[i]);
      if (next != end && std::all_of(next, end, is_zeros)) taken_[i].counted = false;
      next = end;
    }
  }

  GradientHooks& hooks_;
  std::vector<Taken> taken_;
};

}  // namespace

std::unique_ptr<Probe> make_gradient_probe(const Watched& watched, GradientHooks& hooks, ReadOptions options,
                                           HookFuse& fuse) {
  return std::make_unique<GradientProbe>(watched, hooks, options, fuse);
}

std::unique_ptr<Probe> make_moment_probe(const Watched& watched, GradientHooks& hooks, ReadOptions options,
                                         HookFuse& fuse) {
  return std::make_unique<MomentProbe>(watched, hooks, options, fuse);
}

std::unique_ptr<Probe> make_weight_probe(const Watched& watched, ReadOptions options, HookFuse& fuse) {
  return std::make_unique<WeightProbe>(watched, options, fuse);
}

std::unique_ptr<Probe> make_sign_agreement_probe(const Watched& watched, GradientHooks& hooks) {
  return std::make_unique<SignAgreementProbe>(watched, hooks);
}

std::unique_ptr<Probe> make_update_histogram_probe(const Watched& watched, GradientHooks& hooks) {
  return std::make_unique<UpdateHistogramProbe>(watched, hooks);
}

}  // namespace gradmon
