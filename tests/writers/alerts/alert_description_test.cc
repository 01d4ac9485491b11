// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/alert_description.h"

#include <limits>

#include "tests/support/catch.h"
#include "tests/writers/sample_records.h"
#include "writers/alerts/anomaly_dump.h"

using namespace gradmon;

namespace {

Alert turbulence() {
  Alert event;
  event.rule = "AnomalyTurbulence";
  event.step = 2;
  event.tag_name = "0:fc1.input:0/rank0/actv";
  event.op = "norm";
  event.value = 27.77;
  event.history_mean = 5.55;
  return event;
}

std::string tag(Kind kind, const std::string& name, int vpp_stage, int micro_step,
                const Layout& layout = {}) {
  NameTable names;
  Record record = plain_record(3, 0);
  record.kind = kind;
  record.micro_step = micro_step;
  record.target = names.intern(name, vpp_stage);
  return make_tag_name(record, layout, names, Rank{5});
}

}  // namespace

TEST_CASE("a message is msprobe's") {
  CHECK(alert_message(turbulence()) ==
        "Rule AnomalyTurbulence reports anomaly signal in ('0:fc1.input:0/rank0/actv', 'norm') at step 2, "
        "current value 27.77, history mean 5.55.");
  Alert nan = turbulence();
  nan.rule = "AnomalyNan";
  nan.value = nan.history_mean = std::numeric_limits<double>::quiet_NaN();
  CHECK(alert_message(nan).find("current value nan, history mean nan.") != std::string::npos);
  nan.value = -std::numeric_limits<double>::infinity();
  nan.history_mean = 1e-7;
  CHECK(alert_message(nan).find("current value -inf, history mean 1e-07.") != std::string::npos);
}

TEST_CASE("a tag is that of msprobe's files, with its names of the gradients") {
  Layout per_micro_batch;
  per_micro_batch.micro_step_in_grad_unreduced = true;
  CHECK(tag(Kind::actv, "fc1.input", 0, 2) == "0:fc1.input:2/rank5/actv");
  CHECK(tag(Kind::actv_grad, "fc1.output", 1, 0) == "1:fc1.output:0/rank5/actv_grad");
  CHECK(tag(Kind::grad_reduced, "fc1.weight", 0, 2) == "0:fc1.weight/rank5/post_grad");
  CHECK(tag(Kind::grad_unreduced, "fc1.weight", 0, 2) == "0:fc1.weight/rank5/acc_grad");
  CHECK(tag(Kind::grad_unreduced, "fc1.weight", 0, 2, per_micro_batch) == "0:fc1.weight:2/rank5/pre_grad");
  CHECK(tag(Kind::exp_avg_sq, "fc1.weight", 0, 0) == "0:fc1.weight/rank5/exp_avg_sq");
  CHECK(tag(Kind::scalar, "loss", 0, 0) == "0:loss/rank5/scalar");
}

TEST_CASE("a key of the dump is msprobe's, followed by the op") {
  Alert event = turbulence();
  event.tag_name = "0:1.self_attention.core_attention_flash_0/rank0/input_grad";
  event.step = 1;
  event.call_id = 112;
  event.op = "min";
  CHECK(anomaly_key(event) ==
        "0:1.self_attention.core_attention_flash_0/rank0/input_grad_step_1_call_112_min");
}

TEST_CASE("an event has the place of its row, counted over all kinds of the step") {
  NameTable names;
  const auto input = names.intern("fc1.input", 1);
  std::vector<Record> records;
  for (std::uint64_t i = 0; i < 3; ++i) records.push_back(plain_record(4, i));
  records[0].kind = Kind::actv;
  records[0].target = input;
  records[0].micro_step = records[1].micro_step = 3;
  records[0].values[static_cast<std::size_t>(Op::norm)] = 8;
  const std::vector<Finding> findings{{0, 3, "norm", Anomaly::spike, 2.0, 4},
                                      {2, 3, "norm", Anomaly::nan, 0.0, 3}};
  const AlertOrigin origin{Rank{5}, 1, {1, 5}};
  const AlertReport alerts = describe(findings, records, {}, names, origin);
  REQUIRE(alerts.alerts.size() == 2);
  CHECK(alerts.left_out == 7);
  const Alert& first = alerts.alerts[0];
  CHECK((first.rule == "AnomalySpike" && first.rank == Rank{5} && first.step == 4));
  CHECK((first.micro_step == 3 && first.pp_stage == 1 && first.vpp_stage == 1 && first.call_id == 0));
  CHECK((first.tag_name == "1:fc1.input:3/rank5/actv" && first.op == "norm"));
  CHECK((first.value == 8 && first.history_mean == 2));
  CHECK(first.message == alert_message(first));
  CHECK(first.left_out == 4);
  CHECK((alerts.alerts[1].call_id == 2 && alerts.alerts[1].micro_step == 0));
}

TEST_CASE("call_id counts the rows of all kinds in the order in which they were read") {
  NameTable names;
  names.intern("fc1.weight");
  std::vector<Record> records;
  for (std::uint64_t i = 0; i < 4; ++i) records.push_back(plain_record(4, i));
  records[0].kind = Kind::actv_grad;
  records[0].read_at = 70;  // after the rows of two other kinds
  records[1].kind = Kind::grad_unreduced;
  records[1].read_at = 50;
  records[2].read_at = 60;
  records[3].read_at = 70;
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < records.size(); ++i) findings.push_back({i, 3, "norm", Anomaly::nan, 0.0});
  const AlertReport alerts = describe(findings, records, {}, names, {});
  std::vector<std::uint64_t> call_ids;
  for (const Alert& event : alerts.alerts) call_ids.push_back(event.call_id);
  CHECK(call_ids == std::vector<std::uint64_t>{2, 0, 1, 3});
}

TEST_CASE("the last 256 alerts are kept") {
  RecentAlerts recent;
  CHECK(recent.alerts().empty());
  for (std::int64_t step = 0; step < 300; ++step) {
    AlertReport report;
    report.alerts.emplace_back().step = step;
    recent.add(report);
  }
  const std::vector<Alert> kept = recent.alerts();
  REQUIRE(kept.size() == RecentAlerts::kMostKept);
  CHECK(kept.front().step == 300 - 256);
  CHECK(kept.back().step == 299);
}
