// SPDX-License-Identifier: Apache-2.0
// Agreement of a gradient's signs with its momentum's: mg_direction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hooks/gradients/gradient_hooks.h"
#include "hooks/rows/probe.h"
#include "hooks/stats/sign_agreement.h"

namespace gradmon {

// Compares the gradient that the optimizer is about to use with exp_avg or the momentum before the update. A
// parameter has no row at its first update, nor in a step in which it takes no part. If a step has several
// updates, the last counts, as for grad_reduced. If the optimizer keeps no momentum, or if the two tensors
// cannot be compared, the parameter is counted as not applicable.
class SignAgreementProbe : public Probe {
 public:
  // `watched` and `hooks` must outlive this.
  SignAgreementProbe(const std::vector<WatchedTensor>& watched, GradientHooks& hooks);

  void begin_step(Step step) override;
  void before_update(const Update& update) override;
  void write_rows(RowWriter& rows) override;

 private:
  enum class Outcome : std::uint8_t { none, measured, keeps_none, not_comparable, failed };
  struct Agreement {
    Outcome outcome = Outcome::none;
    SignAgreement share;
    std::int64_t read_at = 0;
    std::string why;  // failed: such as no memory on the device
  };

  Agreement agreement_of(std::size_t index, const Update& update);

  const std::vector<WatchedTensor>& watched_;
  GradientHooks& hooks_;
  std::vector<Agreement> agreements_;
};

}  // namespace gradmon
