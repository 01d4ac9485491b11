// SPDX-License-Identifier: Apache-2.0
// Probes of the gradients, moments and weights around the optimizer's step. The arguments must outlive them.
#pragma once

#include <memory>
#include <vector>

#include "hooks/probes/gradient_hooks.h"
#include "hooks/rows/probe.h"
#include "hooks/rows/reading.h"

namespace gradmon {

// Gradients as the optimizer is about to use them: grad_reduced. Has only the parameters that took part in
// the step. If a step has several updates, the last counts.
std::unique_ptr<Probe> make_gradient_probe(const std::vector<WatchedTensor>& watched, GradientHooks& hooks,
                                           ReadOptions options, HookFuse& fuse);

// The optimizer's moments before its step: exp_avg, exp_avg_sq. Reads the moments just before the update, so
// a parameter has none at its first update. If a step has several updates, the first counts. Has only the
// parameters that take part in the step, because other moments are stale. A parameter for which the optimizer
// keeps no moment is counted as not applicable.
std::unique_ptr<Probe> make_moment_probe(const std::vector<WatchedTensor>& watched, GradientHooks& hooks,
                                         ReadOptions options, HookFuse& fuse);

// Weights before and after the optimizer's step: param_origin, param_updated. If a step has several updates,
// param_origin precedes the first and param_updated follows the last.
std::unique_ptr<Probe> make_weight_probe(const std::vector<WatchedTensor>& watched, ReadOptions options,
                                         HookFuse& fuse);

// Agreement of a gradient's signs with its momentum's: mg_direction. Compares the gradient that the optimizer
// is about to use with exp_avg or the momentum before the update. A parameter has no row at its first update,
// nor in a step in which it takes no part. If a step has several updates, the last counts, as for
// grad_reduced. If the optimizer keeps no momentum, or if the two tensors cannot be compared, the parameter
// is counted as not applicable.
std::unique_ptr<Probe> make_sign_agreement_probe(const std::vector<WatchedTensor>& watched,
                                                 GradientHooks& hooks);

// Histograms of Adam's change to each parameter: update, ratio. Reads the moments just before the update, as
// the moment probe does, so a parameter has no histogram at its first update. If a step has several updates,
// the first counts. Has only parameters that take part in the step. A parameter whose optimizer keeps no
// moments, betas, eps and steps of Adam is counted as not applicable.
std::unique_ptr<Probe> make_update_histogram_probe(const std::vector<WatchedTensor>& watched,
                                                   GradientHooks& hooks);

}  // namespace gradmon
