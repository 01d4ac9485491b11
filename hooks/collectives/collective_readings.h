// SPDX-License-Identifier: Apache-2.0
// What is read of communication in one step, gathered from the threads that
// call and from those that complete.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "hooks/observe/call_site.h"
#include "hooks/observe/code_lines.h"
#include "hooks/collectives/collective_observer.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/hook_settings.h"
#include "hooks/rows/reading.h"

namespace gradmon {

// One call site, direction and place in the list of tensors.
struct CollectiveRow {
  std::string name;  // "all_reduce.post_0@train.py[23]"
  int vpp_stage = 0;
  std::vector<Reading> readings;  // of each call
};

// Counts since they were last told.
struct CollectiveStep {
  std::vector<CollectiveRow> rows;  // in order of first arrival
  std::vector<std::string> log;     // log_only: one line for each sort of call
  std::uint64_t calls = 0;
  std::uint64_t late = 0;     // completed after the step, or not at all: no values
  std::uint64_t failed = 0;   // the call threw or gave no work, or its work threw
  std::uint64_t changed = 0;  // written to before or while its outputs were read
};

// Any thread; held by every work that is still going on, so that it may complete
// after the hooks are gone. Inputs are
// read before the call, on the thread that makes it; outputs in a callback on the
// work's future, on the thread that completes it (with Gloo, the caller's wait()
// then includes it). A work that has no future (Gloo's send and recv) is looked
// at when the next call is made and when the step closes. Tensors are held until
// then, and no longer than the step where there is no future.
class CollectiveReadings : public CollectiveListener,
                           public std::enable_shared_from_this<CollectiveReadings> {
 public:
  CollectiveReadings(const CollectiveSettings& settings, double eps, CallSiteSource call_site);
  ~CollectiveReadings() override;

  std::unique_ptr<Visit> calling(CollectiveCall call) override;
  void failed(std::string_view cause) noexcept override { fuse_.trip("a collective call", cause); }

  // Training thread. open: what is called from now on belongs to a new step.
  // close: and from now on to none; waits for readings in progress, for works
  // never. take: what the closed step has, once.
  void open();
  void close() noexcept;
  CollectiveStep take();
  // The first failure of ours; nothing is read after it.
  std::optional<HookFailure> failure() const { return fuse_.failure(); }
  // As HookFuse::spent().
  std::chrono::nanoseconds spent() const noexcept { return fuse_.spent(); }

 private:
  class Launch;
  // Outputs that are not complete.
  struct Outputs {
    std::uint64_t step = 0;
    std::string op, place;
    int vpp_stage = 0;
    std::vector<at::Tensor> tensors;
    std::vector<std::uint32_t> versions;  // as the call, or the work where it has a future, left them
    c10::intrusive_ptr<c10d::Work> work;  // where it has no future
  };
  enum class Completion : std::uint8_t { done, failed };

  std::unique_ptr<Visit> begin(CollectiveCall call);
  void launched(std::shared_ptr<Outputs> outputs, const c10::intrusive_ptr<c10d::Work>& work);
  bool add_callback(const std::shared_ptr<Outputs>& outputs, c10d::Work& work);
  void completed(Outputs& outputs, Completion completion);
  void read_outputs(const Outputs& outputs);
  void check_finished_calls();
  // With mutex_ held: whether the call's step is over; counts it then.
  bool too_late(const Outputs& call);
  void store(const Outputs& call, const char* direction, std::vector<Reading> readings);
  std::vector<Reading> read(const std::vector<at::Tensor>& tensors, const std::string& op);

  // Constant after construction.
  const CollectiveSettings settings_;
  const double eps_;
  const CallSiteSource call_site_;
  const CodeLines lines_;
  HookFuse fuse_;  // own synchronisation

  mutable std::mutex mutex_;
  std::condition_variable unread_;
  // Guarded by mutex_.
  bool open_ = false;
  std::uint64_t step_ = 0;  // counts open()
  int reading_ = 0;         // completions being read
  CollectiveStep collected_;
  std::map<std::string, std::size_t> row_of_;  // by name, in collected_
  std::set<std::string> logged_;
  std::vector<std::shared_ptr<Outputs>> without_future_;
  std::set<std::type_index> futureless_;  // sorts of work that have none
};

}  // namespace gradmon
