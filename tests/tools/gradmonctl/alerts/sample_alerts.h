// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>

#include "control/wire/command.h"
#include "tests/tools/gradmonctl/sample_status.h"

namespace gradmon {

// Three alerts of two ranks, one with a hostile text; two more were raised, with the first one.
inline CommandReply sample_alerts() {
  CommandReply reply;
  reply.raised_alerts = 5;
  reply.alerts.resize(3);
  RankAlert& spike = reply.alerts[0];
  spike = {71,      kSampleTime,
           Rank{3}, "AnomalySpike",
           1204,    0,
           1,       0,
           7,       "0:fc1.weight/rank3/post_grad",
           "norm",  27.7712,
           5.5514,  "",
           2};
  spike.message =
      "Rule AnomalySpike reports anomaly signal in ('0:fc1.weight/rank3/post_grad', 'norm') at step 1204, "
      "current value 27.7712, history mean 5.5514.";
  reply.alerts[1] = spike;
  reply.alerts[1].number = 72;
  reply.alerts[1].left_out = 0;
  reply.alerts[1].at += 2'000;
  reply.alerts[1].rule = "AnomalyNan";
  reply.alerts[1].step = 1206;
  reply.alerts[1].value = std::numeric_limits<double>::quiet_NaN() * -1;
  reply.alerts[1].history_mean = std::numeric_limits<double>::infinity();
  reply.alerts[2] = reply.alerts[1];
  reply.alerts[2].number = 73;
  reply.alerts[2].rank = Rank{0};
  reply.alerts[2].tag_name = "evil\x1b[31m\n";
  reply.alerts[2].message = "red \x1b[31m and \xff";
  return reply;
}

}  // namespace gradmon
