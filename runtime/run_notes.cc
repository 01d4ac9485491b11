// SPDX-License-Identifier: Apache-2.0
#include "runtime/run_notes.h"

#include <torch/version.h>

#include <exception>
#include <utility>

#include "control/agree/plan.h"
#include "control/log.h"

namespace gradmon {

RunNotes::RunNotes(std::shared_ptr<RunDirectory> directory, int world_size, Ranks ranks, WriterThread& writer)
    : directory_(std::move(directory)), ranks_(std::move(ranks)), writer_(writer) {
  file_.world_size = world_size;
  file_.versions = {{"gradmon", GRADMON_VERSION}, {"torch", TORCH_VERSION}};
}

void RunNotes::add_model(const WatchedModel& chunk) {
  for (const WatchedParameter& parameter : chunk.parameters)
    file_.scopes[std::to_string(parameter.vpp_stage) + ":" + parameter.name] = parameter.scope;
  renew();
}

void RunNotes::note(const Commitment& commitment) {
  const Plan& plan = *commitment.plan;
  file_.revisions.push_back(
      {commitment.revision, commitment.effective, plan.on, name_of(plan.cause), plan.by, plan.config_text});
  renew();
}

void RunNotes::renew() noexcept {
  if (file_.revisions.empty()) return;
  try {
    file_.ranks.clear();
    for (const RankStatus& rank : ranks_()) {
      if (!rank.host.empty()) file_.ranks.push_back({rank.rank, rank.host, rank.pid});
    }
    writer_.write_file([directory = directory_, file = file_] { return write_run_file(*directory, file); });
  } catch (const std::exception& error) {
    log_warn(std::string("the file of this run is not written: ") + error.what());
  }
}

}  // namespace gradmon
