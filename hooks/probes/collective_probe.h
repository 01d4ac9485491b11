// SPDX-License-Identifier: Apache-2.0
// The inputs and outputs of collective calls, by call site (cc_distribution).
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
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

#include "hooks/device/device_fetch.h"
#include "hooks/observe/call_site.h"
#include "hooks/observe/forward_listener.h"
#include "hooks/observe/forward_tracker.h"
#include "hooks/probes/collective_observer.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/hook_settings.h"
#include "hooks/rows/probe.h"
#include "hooks/rows/reading.h"
#include "hooks/rows/target_names.h"
#include "hooks/rows/watched_model.h"

namespace re2 {
class RE2;
}

namespace gradmon {

// The streams on which outputs are read if no wait of the program is reported. One stream for each process
// group; above kMost a new group takes the oldest one's. The calls of a group complete in order; on a shared
// stream, a complete call's reading would wait for other groups. Any thread.
class ReadingStreams {
 public:
  static constexpr std::size_t kMost = 8;  // per device

  static ReadingStreams& instance();
  // nullopt: the device has no stream for us.
  std::optional<c10::Stream> of(const void* group, const c10::Device& device);

 private:
  struct Lane {
    const void* group;
    c10::Stream stream;
  };

  std::mutex mutex_;
  std::vector<Lane> lanes_;  // guarded by mutex_; the newest group last
};

// Selects call sites by the config's patterns (cc_codeline). Immutable.
class CallSiteFilter {
 public:
  // RE2 patterns such as "train.py\[23\]"; an empty list selects every site. An invalid pattern is logged
  // and selects nothing.
  explicit CallSiteFilter(const std::vector<std::string>& patterns);
  ~CallSiteFilter();

  // Returns true if a pattern matches a part of the place or of a frame.
  bool select(const CallSite& site) const;

 private:
  std::vector<std::unique_ptr<const re2::RE2>> patterns_;
};

// The readings of one call site, direction and index in the list of tensors.
struct CollectiveRow {
  std::string name;  // "all_reduce.post_0@train.py[23]"
  int vpp_stage = 0;
  std::vector<Reading> readings;  // one per call, at most CollectiveReadings::kMostCalls
};

// The counts cover the time since the last take().
struct CollectiveStep {
  std::vector<CollectiveRow> rows;  // in order of first arrival
  std::vector<std::string> log;     // log_only: one line for each different call not logged before
  std::uint64_t late = 0;           // completed after the step, or never: no values
  std::uint64_t failed = 0;         // the call threw, or its work failed
  std::uint64_t untold = 0;         // the step had no sign that it could be read
  std::uint64_t changed = 0;        // outputs were written before or during the reading: no values
  std::set<std::string> unread;     // sentences of CollectiveListener::on_unread()
};

// Any thread. Every work in progress keeps it alive, so that the work may complete after the hooks are
// gone. Inputs are read before the call, on the calling thread. Outputs are read:
// - for a synchronous call without a work (NCCL's, torch >= 2.8; symmetric memory's): when it returns, on
//   the current stream;
// - for coalesced calls, and calls on a device with `wait_is_told`: when the program waits for them;
// - for other calls on a device, and if the program takes the future or does not wait within the step: on
//   one of ReadingStreams, once the work's future is complete. NCCL's future is complete at once; the
//   reading stream waits for NCCL's stream;
// - on the CPU: in a callback of the work's future, on the thread that completes the work (with Gloo, the
//   caller's wait() then includes the reading). Work without a future (Gloo's send and recv) is polled when
//   the next call is made and when the step closes.
// A call that is captured into a CUDA graph is not applicable. Output tensors are held until they are read,
// at most until the end of the step or of the work.
class CollectiveReadings : public CollectiveListener,
                           public std::enable_shared_from_this<CollectiveReadings> {
 public:
  // The limit of calls of one row in a step. With more calls the row is not applicable: a program whose steps
  // never end must not fill the memory.
  static constexpr std::size_t kMostCalls = std::size_t{1} << 16;

  CollectiveReadings(const CollectiveSettings& settings, double eps, CallSiteSource call_site);
  ~CollectiveReadings() override;

  std::unique_ptr<CallScope> on_call(CollectiveCall call) override;
  void on_coalesced(std::uint64_t number, CoalescedWork work) override;
  bool has_unwaited_calls() const override;
  void on_waited(const c10::ivalue::Future& future) override;
  void on_waited(const at::Tensor& output) override;
  void on_future_taken(const c10::ivalue::Future& future) override;
  void on_unread(const std::string& sentence) override;
  void on_failure(std::string_view cause) noexcept override { fuse_.trip("a collective call", cause); }

  // Training thread. open(): calls from now on belong to a new step. close(): calls from now on belong to
  // no step; waits for readings in progress, but never for works. take(): returns and removes the results
  // of the closed step.
  void open();
  void close() noexcept;
  CollectiveStep take();
  // Has gradmon's first failure; nothing is read after it.
  const HookFuse& fuse() const { return fuse_; }

 private:
  class Launch;
  // Bytes of a storage.
  struct Memory {
    const void* storage;
    std::int64_t begin, end;
  };
  // The outputs of a call whose work has not completed.
  struct Outputs {
    std::uint64_t step = 0;
    std::string op, place;
    int vpp_stage = 0;
    bool synchronous = false;     // CollectiveCall::synchronous
    std::uint64_t coalesced = 0;  // CollectiveCall::coalesced
    const void* group = nullptr;  // CollectiveCall::group_id
    bool wait_is_told = false;    // on_waited() follows if the program waits
    bool functional = false;      // CollectiveCall::functional
    bool returned = false;        // CollectiveCall::returns_output
    std::vector<Memory> memory;   // the tensors' bytes
    std::vector<at::Tensor> tensors;
    std::vector<std::uint32_t> versions;             // expected at the reading
    c10::intrusive_ptr<c10d::Work> work;             // set only if it has no future
    c10::intrusive_ptr<c10::ivalue::Future> future;  // set while the program has not waited
  };
  enum class Completion : std::uint8_t { done, failed };

  static constexpr std::size_t kMostLogged = 4096;  // per plan

  std::unique_ptr<CallScope> begin(CollectiveCall call);
  void note_logged(const std::string& line);  // with mutex_ held
  void launched(const std::shared_ptr<Outputs>& outputs, const c10::intrusive_ptr<c10d::Work>& work);
  // For a work without a future. Call it with mutex_ held.
  void poll(const std::shared_ptr<Outputs>& outputs, const c10::intrusive_ptr<c10d::Work>& work);
  void launched_with_others(const std::shared_ptr<Outputs>& outputs);
  void count_untold(const Outputs& call);
  void count_failed();
  void launched_on_device(const std::shared_ptr<Outputs>& outputs, c10d::Work& work);
  template <typename IsWanted>
  std::shared_ptr<Outputs> take_unwaited(IsWanted&& is_wanted);
  static std::vector<Memory> memory_of(const std::vector<at::Tensor>& tensors);
  void count_overwritten(const std::vector<Memory>& memory);
  void read_waited(Outputs& outputs);
  void read_unwaited(const std::shared_ptr<Outputs>& outputs);
  void read_when_complete(const std::shared_ptr<Outputs>& outputs, c10::ivalue::Future& future);
  void future_completed(Outputs& outputs, c10::ivalue::Future& future, bool at_once);
  void read_on_own_streams(Outputs& outputs, c10::ivalue::Future& future);
  void completed(Outputs& outputs, Completion completion);
  void read_outputs(const Outputs& outputs);
  void check_finished_calls();
  // Call it with mutex_ held. True: the call's step is over; counts the call as late.
  bool too_late(const Outputs& call);
  void store(const Outputs& call, const char* direction, std::vector<Reading> readings);
  std::vector<Reading> read(const std::vector<at::Tensor>& tensors, const std::string& op);

  // Constant after construction.
  const CollectiveSettings settings_;
  const double eps_;
  const CallSiteSource call_site_;
  const CallSiteFilter call_sites_;
  HookFuse fuse_;  // own synchronisation

  mutable std::mutex mutex_;
  std::condition_variable unread_;
  // Guarded by mutex_.
  bool open_ = false;
  std::uint64_t step_ = 0;             // number of open() calls
  std::uint64_t first_coalesced_ = 0;  // lowest CollectiveCall::coalesced of this step
  int reading_ = 0;                    // number of readings of outputs in progress
  CollectiveStep collected_;
  std::map<std::pair<int, std::string>, std::size_t> row_of_;  // chunk and name to index in collected_.rows
  std::set<std::string> logged_;
  std::vector<std::shared_ptr<Outputs>> without_future_;
  std::vector<std::shared_ptr<Outputs>> unwaited_;                            // on a device
  std::map<std::uint64_t, std::vector<std::shared_ptr<Outputs>>> coalesced_;  // by Outputs::coalesced
  std::set<std::type_index> futureless_;  // types of work on the CPU that have no future
};

// Call sites in a program without known source lines: the innermost watched module whose forward is running
// on the thread. Any thread. It is a listener only to make the HookSet create a ForwardTracker, which tracks
// the modules of each thread.
class NativeCallSites : public ForwardListener {
 public:
  explicit NativeCallSites(const std::vector<WatchedModule>& modules);

  // "native[layers.0]", with this module and the modules around it as frames. "native" outside of all
  // modules, and inside the root only.
  CallSite here() const;

  void before_forward(const ForwardVisit&, const ForwardTensors&) override {}
  void after_forward(const ForwardVisit&, const ForwardTensors&) override {}

 private:
  const std::vector<TargetName> names_;
  const ModuleIndices indices_;
};

// Writes rows of Kind::other: one for each call site, direction and index in the list of tensors, in order
// of first arrival. Several calls are folded into one row. Work that completes after its step has no row
// in any step and is counted as not applicable. With log_only there are no rows; each different call is
// logged once, at the end of its step. Observes collected steps only.
class CollectiveProbe : public Probe {
 public:
  // If `stack` is null or returns no frames, the call site is the watched module around the call.
  // `stream` and `fuse` must outlive this.
  CollectiveProbe(const CollectiveSettings& settings, double eps, const std::vector<WatchedModule>& modules,
                  StackSource stack, RecordStream& stream, HookFuse& fuse);
  ~CollectiveProbe() override;

  void begin_step(Step step, Readers active) override;
  void disarm() noexcept override;
  void write_rows(RowWriter& rows) override;
  ForwardListener* forward_listener() noexcept override { return needs_tracker_ ? native_.get() : nullptr; }

 private:
  const std::shared_ptr<NativeCallSites> native_;
  const bool needs_tracker_;  // to find the module around a call, or its model chunk
  const std::shared_ptr<CollectiveReadings> readings_;
  RecordStream& stream_;
  HookFuse& fuse_;
  std::chrono::nanoseconds charged_{};          // part of readings_->hook_time() already charged to fuse_
  std::optional<CollectiveObserver> observer_;  // Keep last.
};

}  // namespace gradmon
