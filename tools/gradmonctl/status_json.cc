// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/status_json.h"

#include "tools/gradmonctl/agreement.h"

namespace gradmon {
namespace {

OrderedJson json_of(const Pending& pending) {
  return {{"revision",
           pending.revision == Revision{} ? OrderedJson(nullptr) : OrderedJson(pending.revision.value)},
          {"reason", text_or_null(pending.reason)},
          {"since", time_or_null(pending.since)}};
}

OrderedJson json_of(const LastError& error) {
  return {{"at", time_or_null(error.at)}, {"text", error.text}, {"count", error.count}};
}

OrderedJson json_of(const RankStatus& rank) {
  return {
      {"rank", rank.rank.value},
      {"host", text_or_null(rank.host)},
      {"pid", rank.pid == 0 ? OrderedJson(nullptr) : OrderedJson(rank.pid)},
      {"step", rank.step},
      {"revision", rank.revision.value},
      {"applied_step", step_or_null(rank.applied_step)},
      {"state", rank.state},
      {"step_ms", rank.step_ms},
      {"overhead", rank.overhead.collected == 0 ? OrderedJson(nullptr) : OrderedJson(rank.overhead.share)},
      {"overhead_steps", rank.overhead.steps},
      {"last_seen_ms", rank.last_seen_ms},
      {"last_stepped_ms", rank.last_stepped_ms},
      {"accepted", rank.accepted.value},
      {"waited_ms", rank.waited_ms},
      {"records", rank.records},
      {"dropped", rank.dropped},
      {"targets",
       {{"watched", rank.targets.watched},
        {"silent", rank.targets.silent},
        {"without_match", rank.targets.unmatched}}},
      {"error", text_or_null(rank.error)}};
}

}  // namespace

std::string status_json(const Status& status, JsonLayout layout) {
  OrderedJson ranks = OrderedJson::array();
  for (const RankStatus& rank : status.ranks) ranks.push_back(json_of(rank));
  const Agreement agreement = agreement_of(status);
  const OrderedJson json{
      {"schema_version", kJsonSchemaVersion},
      {"epoch", status.epoch},
      {"mode", status.mode},
      {"state", status.state},
      {"reason", text_or_null(status.reason)},
      {"revision", status.revision.value},
      {"effective_step", step_or_null(status.effective_step)},
      {"pending", status.pending ? json_of(*status.pending) : OrderedJson(nullptr)},
      {"ranks_agreeing", agreement.agreeing},
      {"ranks_counted", agreement.counted},
      {"training_waited_ms", agreement.waited_ms},
      {"collected", status.collected},
      {"collect_times", status.collect_times},
      {"step_interval", status.step_interval},
      {"torch", text_or_null(status.torch)},
      {"hooks", status.hooks},
      {"launch_id", text_or_null(status.launch_id)},
      {"name", text_or_null(status.name)},
      {"started", time_or_null(status.started)},
      {"output_dir", text_or_null(status.output_dir)},
      {"config_path", text_or_null(status.config_path)},
      {"config_sha256", text_or_null(status.config_sha256)},
      {"last_error", status.last_error ? json_of(*status.last_error) : OrderedJson(nullptr)},
      {"warnings", status.warnings},
      {"ranks", std::move(ranks)}};
  return json_text(json, layout);
}

}  // namespace gradmon
