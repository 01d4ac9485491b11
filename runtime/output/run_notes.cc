// SPDX-License-Identifier: Apache-2.0
#include "runtime/output/run_notes.h"

#include <torch/version.h>

#include <exception>
#include <mutex>
#include <utility>

#include "control/agree/plan.h"
#include "control/log.h"

namespace gradmon {

struct RunNotes::Draft {
  std::mutex mutex;
  // Guarded by mutex.
  RunFile file;
  std::weak_ptr<const void> queued;  // held by a queued write that has not started

  // Returns the object that the caller's write must hold; null: a write is already queued. After a write that
  // the writer thread has refused, the next one is queued.
  std::shared_ptr<const void> put(const RunFile& changed) {
    const std::lock_guard lock(mutex);
    file = changed;
    if (!queued.expired()) return nullptr;
    const std::shared_ptr<const void> held = std::make_shared<char>();
    queued = held;
    return held;
  }
  RunFile take() {
    const std::lock_guard lock(mutex);
    queued.reset();
    return file;
  }
};

RunNotes::RunNotes(std::shared_ptr<RunDirectory> directory, int world_size, Ranks ranks, WriterThread& writer)
    : directory_(std::move(directory)),
      ranks_(std::move(ranks)),
      writer_(writer),
      draft_(std::make_shared<Draft>()) {
  file_.world_size = world_size;
  file_.versions = {{"gradmon", GRADMON_VERSION}, {"torch", TORCH_VERSION}};
}

void RunNotes::add_model(const WatchedModel& chunk) {
  auto scopes = file_.scopes ? *file_.scopes : RunFile::Scopes();
  for (const WatchedParameter& parameter : chunk.parameters)
    scopes[std::to_string(parameter.vpp_stage) + ":" + parameter.name] = parameter.placement;
  file_.scopes = std::make_shared<const RunFile::Scopes>(std::move(scopes));
  renew();
}

void RunNotes::note(const Commitment& commitment) {
  const Plan& plan = *commitment.plan;
  add_revision(file_, {commitment.revision, commitment.effective, plan.on, name_of(plan.cause), plan.by,
                       plan.config_text});
  renew();
}

void RunNotes::renew() noexcept {
  if (file_.revisions.empty()) return;
  try {
    file_.ranks.clear();
    for (const RankStatus& rank : ranks_()) {
      if (!rank.host.empty()) file_.ranks.push_back({rank.rank, rank.host, rank.pid});
    }
    const auto held = draft_->put(file_);
    if (!held) return;
    writer_.write_file(
        [directory = directory_, draft = draft_, held] { return write_run_file(*directory, draft->take()); });
  } catch (const std::exception& error) {
    log_warn(std::string("the file of this run is not written: ") + error.what());
  }
}

}  // namespace gradmon
