// SPDX-License-Identifier: Apache-2.0
// Whether gradients go the way of the momentum: mg_direction.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "hooks/gradients/gradient_hooks.h"
#include "hooks/rows/probe.h"
#include "hooks/stats/sign_agreement.h"

namespace gradmon {

// The gradient as the optimizer is about to use it, against exp_avg or the
// momentum as it stands then: no row at a parameter's very first step, nor of
// one that takes no part. Of several updates in a step the last counts, as for
// grad_reduced. Where the optimizer keeps no momentum, or the two cannot be
// compared, that is counted as not applicable.
class SignAgreementProbe : public Probe {
 public:
  // `watched`, `hooks` outlive this.
  SignAgreementProbe(const std::vector<Watched>& watched, GradientHooks& hooks);

  void begin_step(Step step) override;
  void before_update(const Update& update) override;
  void write_rows(RowWriter& rows) override;

 private:
  enum class Outcome : std::uint8_t { none, measured, keeps_none, not_comparable };
  struct Agreement {
    Outcome outcome = Outcome::none;
    SignAgreement share;
  };

  Agreement agreement_of(std::size_t place, const Update& update);

  const std::vector<Watched>& watched_;
  GradientHooks& hooks_;
  std::vector<Agreement> agreements_;
};

}  // namespace gradmon
