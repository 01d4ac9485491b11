// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradients/sign_agreement_probe.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/optimizer_state.h"
#include "hooks/rows/wrapper_tensor.h"

namespace gradmon {

SignAgreementProbe::SignAgreementProbe(const std::vector<WatchedTensor>& watched, GradientHooks& hooks)
    : watched_(watched), hooks_(hooks), agreements_(watched.size()) {}

void SignAgreementProbe::begin_step(Step) { std::fill(agreements_.begin(), agreements_.end(), Agreement{}); }

void SignAgreementProbe::before_update(const Update& update) {
  for (const std::size_t i : update.parameter_indices) agreements_[i] = agreement_of(i, update);
}

SignAgreementProbe::Agreement SignAgreementProbe::agreement_of(std::size_t index, const Update& update) {
  const at::Tensor& parameter = *watched_[index].tensor;
  if (!hooks_.took_part(index)) return {};
  const at::Tensor gradient = update.gradient_of(parameter);
  if (!gradient.defined()) return {};
  const ParameterState state = update.state ? update.state->of(parameter) : ParameterState{};
  const std::optional<at::Tensor>& momentum = state.first_moment;
  if (!momentum) return {Outcome::keeps_none, {}, 0, {}};
  if (!momentum->defined() || gradient.numel() == 0) return {};
  const at::Tensor part = watched_[index].part_of(gradient);
  if (part.defined() && part.numel() == 0) return {};  // another rank holds all of it
  if (Unwrapped inner = unwrapped(*momentum); !inner.why.empty())
    return {Outcome::failed, {}, 0, std::move(inner.why)};
  const std::int64_t read_at = reading_time();
  try {
    const auto share = sign_agreement(part, watched_[index].part_of(*momentum),
                                      state.maximize ? Sense::negated : Sense::same);
    if (!share) return {Outcome::not_comparable, {}, 0, {}};
    return {Outcome::measured, *share, read_at, {}};
  } catch (const std::exception& error) {
    return {Outcome::failed, {}, 0, first_line(error.what())};
  }
}

void SignAgreementProbe::write_rows(RowWriter& rows) {
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const WatchedTensor& parameter = watched_[i];
    switch (agreements_[i].outcome) {
      case Outcome::none:
        break;
      case Outcome::measured:
        rows.write({Kind::other, parameter.target, parameter.index, 0, agreements_[i].read_at},
                   {{Column::mg_direction, agreements_[i].share.value}}, agreements_[i].share.pending,
                   parameter.name, hooks_.unless_zeros(i));
        break;
      case Outcome::keeps_none:
        rows.count_not_applicable(Kind::other, parameter.target, parameter.name,
                                  "its optimizer keeps no momentum");
        break;
      case Outcome::not_comparable:
        rows.count_not_applicable(
            Kind::other, parameter.target, parameter.name,
            "gradient and momentum differ in size, or are complex, sparse, freed or captured");
        break;
      case Outcome::failed:
        rows.count_not_applicable(Kind::other, parameter.target, parameter.name, agreements_[i].why);
        break;
    }
  }
}

}  // namespace gradmon
