// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/collective_probe.h"

#include <ATen/core/ivalue_inl.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <re2/re2.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <typeinfo>
#include <utility>

#include "control/log.h"
#include "hooks/device/cuda_totals.h"
#include "hooks/device/device_stats.h"
#include "hooks/rows/row_writer.h"
#include "hooks/stats/readable.h"

namespace gradmon {
namespace {

std::vector<std::uint32_t> versions_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::uint32_t> versions;
  for (const at::Tensor& tensor : tensors) versions.push_back(version_of(tensor).value_or(0));
  return versions;
}

std::string shapes_text(const std::vector<at::Tensor>& tensors) {
  std::string text;
  for (const at::Tensor& tensor : tensors) {
    if (!text.empty()) text += ", ";
    text += tensor.defined() ? shape_text(tensor.sizes().vec()) + " " + name_of(dtype_of(tensor)) : "none";
  }
  return text.empty() ? "no tensor" : text;
}

// Keeps memory that the program frees after its wait from reuse until the current stream has read it.
void keep_until_read(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    const auto stream = tensor.defined() ? current_stream(tensor.device()) : std::nullopt;
    if (!stream || !tensor.has_storage()) continue;
    try {
      c10::impl::VirtualGuardImpl(tensor.device().type())
          .recordDataPtrOnStream(tensor.storage().data_ptr(), *stream);
    } catch (const c10::Error&) {  // Memory of another library: torch does not free it.
    }
  }
}

// The tensors' devices, without the CPU.
std::vector<c10::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.is_cpu()) continue;
    if (std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
      devices.push_back(tensor.device());
  }
  return devices;
}

// A stream that waits for a future waits only for the tensors of its value. NCCL's future of a call with
// unequal sizes has no tensor, and is complete before anything is sent.
bool has_no_tensor(const c10::IValue& value) {
  return value.isNone() || (value.isTensorList() && value.toTensorList().empty());
}

bool is_captured(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return tensor.defined() && !why_captured(tensor.device()).empty();
  });
}

// A row with a reading that is not applicable is not applicable as a whole.
void add_to_row(std::vector<Reading>& row, Reading reading) {
  if (row.size() < CollectiveReadings::kMostCalls) return row.push_back(std::move(reading));
  row.front().mark_not_applicable("one step has more than " + std::to_string(CollectiveReadings::kMostCalls) +
                                  " calls from this line");
}

c10::intrusive_ptr<c10::ivalue::Future> future_of(c10d::Work& work) {
  try {
    return work.getFuture();
  } catch (const std::exception&) {  // not every type of work has a future
    return {};
  }
}

// True if CUDA runs the work of all streams in the order of queueing: a stream that waits delays all later
// work.
bool has_one_queue() {
  static const char* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  return queues != nullptr && std::string_view(queues) == "1";
}

// torch > 1.13 can run the callback without streams of its own.
template <typename Future, typename Callback>
auto call_back(Future& future, const Callback& callback, int)
    -> decltype(future.addCallback(callback, /*uses_future=*/false)) {
  future.addCallback(callback, /*uses_future=*/false);
}
template <typename Future, typename Callback>
void call_back(Future& future, const Callback& callback, long) {
  future.addCallback(callback);
}

std::string log_line(const CollectiveCall& call, const CallSite& site) {
  std::string text = call.op + "@" + site.place + ": " + shapes_text(call.inputs) + " -> " +
                     shapes_text(call.outputs) + "; " + call.group + ", rank " +
                     std::to_string(call.group_rank) + " of " + std::to_string(call.group_size);
  for (std::size_t i = 0; i < site.frames.size(); ++i) text += (i == 0 ? "; " : " < ") + site.frames[i];
  return text;
}

// The first sequence number here. Rows of Kind::other from parameters have lower numbers.
constexpr std::uint64_t kFirstSequence = std::uint64_t{1} << 32U;

std::string place_of(const StackFrame& frame) {
  return frame.path.substr(frame.path.rfind('/') + 1) + "[" + std::to_string(frame.line) + "]";
}

CallSite call_site_here(const StackSource& stack, const NativeCallSites& native) {
  CallSite site = native.here();
  if (!stack) return site;
  const auto [frames, wait_is_told] = stack();
  site.wait_is_told = wait_is_told;
  if (frames.empty()) return site;
  site.place = place_of(frames.front());
  site.frames.clear();
  for (const StackFrame& frame : frames) site.frames.push_back(place_of(frame) + " " + frame.function);
  return site;
}

void count(RowWriter& rows, std::uint64_t times, const char* why) {
  for (std::uint64_t i = 0; i < times; ++i)
    rows.count_not_applicable(Kind::other, std::nullopt, "a collective call", why);
}

}  // namespace

ReadingStreams& ReadingStreams::instance() {
  // Never destroyed: work may complete while the process exits.
  static auto* const only = new ReadingStreams;
  return *only;
}

std::optional<c10::Stream> ReadingStreams::of(const void* group, const c10::Device& device) {
  const std::lock_guard lock(mutex_);
  const auto is_here = [&](const Lane& lane) { return lane.stream.device() == device; };
  const auto known = std::find_if(lanes_.begin(), lanes_.end(),
                                  [&](const Lane& lane) { return is_here(lane) && lane.group == group; });
  if (known != lanes_.end()) return known->stream;
  std::optional<c10::Stream> stream;
  if (static_cast<std::size_t>(std::count_if(lanes_.begin(), lanes_.end(), is_here)) < kMost) {
    stream = own_stream(device);
  } else {
    const auto oldest = std::find_if(lanes_.begin(), lanes_.end(), is_here);
    stream = oldest->stream;
    lanes_.erase(oldest);
  }
  if (stream) lanes_.push_back({group, *stream});
  return stream;
}

CallSiteFilter::CallSiteFilter(const std::vector<std::string>& patterns) {
  for (const std::string& text : patterns) {
    auto pattern = std::make_unique<const re2::RE2>(text, re2::RE2::Quiet);
    if (!pattern->ok()) log_warn("cc_codeline: invalid pattern \"" + text + "\": " + pattern->error());
    patterns_.push_back(std::move(pattern));
  }
}

CallSiteFilter::~CallSiteFilter() = default;

bool CallSiteFilter::select(const CallSite& site) const {
  if (patterns_.empty()) return true;
  return std::any_of(patterns_.begin(), patterns_.end(), [&](const auto& pattern) {
    const auto found_in = [&](const std::string& text) { return re2::RE2::PartialMatch(text, *pattern); };
    return found_in(site.place) || std::any_of(site.frames.begin(), site.frames.end(), found_in);
  });
}

class CollectiveReadings::Launch : public CollectiveListener::CallScope {
 public:
  Launch(std::shared_ptr<CollectiveReadings> readings, std::shared_ptr<Outputs> outputs)
      : readings_(std::move(readings)), outputs_(std::move(outputs)) {}

  void on_output(const at::Tensor& output) override {
    if (outputs_->returned) outputs_->tensors.push_back(output);
  }
  void on_return(const c10::intrusive_ptr<c10d::Work>& work) override {
    readings_->fuse_.guard(outputs_->op, [&] { readings_->launched(outputs_, work); });
  }
  void on_throw() override { readings_->count_failed(); }

 private:
  const std::shared_ptr<CollectiveReadings> readings_;
  const std::shared_ptr<Outputs> outputs_;
};

CollectiveReadings::CollectiveReadings(const CollectiveSettings& settings, double eps,
                                       CallSiteSource call_site)
    : settings_(settings), eps_(eps), call_site_(std::move(call_site)), call_sites_(settings.code_lines) {}

CollectiveReadings::~CollectiveReadings() = default;

void CollectiveReadings::open() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  ++step_;
  first_coalesced_ = coalescings() + 1;
  collected_.rows.clear();
  row_of_.clear();
}

void CollectiveReadings::close() noexcept {
  fuse_.guard("a collective call", [&] {
    check_finished_calls();
    std::unique_lock lock(mutex_);
    const auto unwaited = std::exchange(unwaited_, {});
    lock.unlock();
    for (const auto& outputs : unwaited) read_unwaited(outputs);
  });
  std::vector<std::shared_ptr<Outputs>> unwaited;    // added by another thread meanwhile
  std::vector<std::shared_ptr<Outputs>> incomplete;  // released without the lock
  decltype(coalesced_) not_over;
  std::unique_lock lock(mutex_);
  unread_.wait(lock, [&] { return reading_ == 0; });
  open_ = false;
  unwaited.swap(unwaited_);
  incomplete.swap(without_future_);
  not_over.swap(coalesced_);
  collected_.late += incomplete.size() + unwaited.size();
  for (const auto& [number, calls] : not_over) collected_.untold += calls.size();
  lock.unlock();
}

CollectiveStep CollectiveReadings::take() {
  const std::lock_guard lock(mutex_);
  row_of_.clear();
  return std::exchange(collected_, {});
}

std::unique_ptr<CollectiveListener::CallScope> CollectiveReadings::on_call(CollectiveCall call) {
  if (fuse_.tripped()) return nullptr;
  std::unique_ptr<CallScope> scope;
  const std::string op = call.op;
  fuse_.guard(op, [&] { scope = begin(std::move(call)); });
  return scope;
}

std::unique_ptr<CollectiveListener::CallScope> CollectiveReadings::begin(CollectiveCall call) {
  check_finished_calls();
  const CallSite site = call_site_();
  if (!call_sites_.select(site)) {
    count_overwritten(memory_of(call.outputs));
    return nullptr;
  }
  auto outputs = std::make_shared<Outputs>();
  {
    const std::lock_guard lock(mutex_);
    if (!open_) return nullptr;
    outputs->step = step_;
    if (settings_.log_only) {
      const std::string line = log_line(call, site);
      note_logged(line);
      return nullptr;
    }
  }
  outputs->op = call.op;
  outputs->place = site.place;
  outputs->vpp_stage = site.vpp_stage;
  outputs->synchronous = call.synchronous;
  outputs->coalesced = call.coalesced;
  outputs->group = call.group_id;
  outputs->functional = call.functional;
  outputs->returned = call.returns_output;
  outputs->wait_is_told = call.functional || site.wait_is_told;
  if (settings_.inputs) store(*outputs, "pre", read(call.inputs, call.op));
  if (call.outputs.empty() && !call.returns_output) return nullptr;
  outputs->tensors = std::move(call.outputs);
  return std::make_unique<Launch>(shared_from_this(), std::move(outputs));
}

void CollectiveReadings::note_logged(const std::string& line) {
  if (logged_.size() == kMostLogged || !logged_.insert(line).second) return;
  collected_.log.push_back(line);
  if (logged_.size() == kMostLogged) collected_.log.push_back("further calls are not logged");
}

void CollectiveReadings::launched(const std::shared_ptr<Outputs>& outputs,
                                  const c10::intrusive_ptr<c10d::Work>& work) {
  outputs->versions = versions_of(outputs->tensors);  // a backend without futures does not change versions
  outputs->memory = memory_of(outputs->tensors);
  count_overwritten(outputs->memory);
  if (outputs->coalesced != 0) return launched_with_others(outputs);
  if (!work) return outputs->synchronous ? completed(*outputs, Completion::done) : count_untold(*outputs);
  // Not applicable: a stream that waited for the work would become a part of the graph.
  if (is_captured(outputs->tensors)) return completed(*outputs, Completion::done);
  if (!devices_of(outputs->tensors).empty()) return launched_on_device(outputs, *work);
  const std::type_index sort(typeid(*work));
  {
    const std::lock_guard lock(mutex_);
    if (too_late(*outputs)) return;
    if (futureless_.count(sort) != 0) return poll(outputs, work);
  }
  if (const auto future = future_of(*work)) return read_when_complete(outputs, *future);
  const std::lock_guard lock(mutex_);
  futureless_.insert(sort);
  poll(outputs, work);
}

void CollectiveReadings::poll(const std::shared_ptr<Outputs>& outputs,
                              const c10::intrusive_ptr<c10d::Work>& work) {
  outputs->work = work;
  without_future_.push_back(outputs);
}

void CollectiveReadings::launched_on_device(const std::shared_ptr<Outputs>& outputs, c10d::Work& work) {
  outputs->future = future_of(work);
  if (!outputs->future) return count_untold(*outputs);
  if (!outputs->wait_is_told) return read_unwaited(outputs);
  const std::lock_guard lock(mutex_);
  if (!too_late(*outputs)) unwaited_.push_back(outputs);
}

bool CollectiveReadings::has_unwaited_calls() const {
  const std::lock_guard lock(mutex_);
  return !unwaited_.empty();
}

template <typename IsWanted>
std::shared_ptr<CollectiveReadings::Outputs> CollectiveReadings::take_unwaited(IsWanted&& is_wanted) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(unwaited_.begin(), unwaited_.end(),
                                  [&](const auto& outputs) { return is_wanted(*outputs); });
  if (found == unwaited_.end()) return nullptr;
  auto taken = std::move(*found);
  unwaited_.erase(found);
  return taken;
}

// The memory of contiguous tensors, as communication libraries require them.
std::vector<CollectiveReadings::Memory> CollectiveReadings::memory_of(
    const std::vector<at::Tensor>& tensors) {
  std::vector<Memory> memory;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    if (tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) continue;  // a tensor of the compiler
    const auto size = static_cast<std::int64_t>(tensor.element_size());
    const std::int64_t begin = tensor.storage_offset() * size;
    memory.push_back({tensor.storage().unsafeGetStorageImpl(), begin, begin + tensor.numel() * size});
  }
  return memory;
}

// NCCL writes outputs without changing the tensors' versions.
void CollectiveReadings::count_overwritten(const std::vector<Memory>& memory) {
  const auto overlap = [](const Memory& one, const Memory& other) {
    return one.storage == other.storage && one.begin < other.end && other.begin < one.end;
  };
  const auto is_overwritten = [&](const Outputs& each) {
    return std::any_of(each.memory.begin(), each.memory.end(), [&](const Memory& one) {
      return std::any_of(memory.begin(), memory.end(),
                         [&](const Memory& other) { return overlap(one, other); });
    });
  };
  while (take_unwaited(is_overwritten)) {
    const std::lock_guard lock(mutex_);
    ++collected_.changed;
  }
}

void CollectiveReadings::on_waited(const c10::ivalue::Future& future) {
  // Gloo's synchronize() does not wait for a work that has only begun.
  if (future.devices().empty() && !future.completed()) return;
  const auto outputs = take_unwaited([&](const Outputs& each) { return each.future.get() == &future; });
  if (outputs) fuse_.guard(outputs->op, [&] { read_waited(*outputs); });
}

// Like torch, finds the calls by their storage, and takes all of them.
void CollectiveReadings::on_waited(const at::Tensor& output) {
  if (!output.defined() || !output.has_storage()) return;
  const void* const storage = output.storage().unsafeGetStorageImpl();
  const auto writes_it = [&](const Outputs& each) {
    return each.functional && std::any_of(each.memory.begin(), each.memory.end(),
                                          [&](const Memory& one) { return one.storage == storage; });
  };
  while (const auto outputs = take_unwaited(writes_it))
    fuse_.guard(outputs->op, [&] { read_waited(*outputs); });
}

void CollectiveReadings::on_future_taken(const c10::ivalue::Future& future) {
  const auto outputs = take_unwaited([&](const Outputs& each) { return each.future.get() == &future; });
  if (outputs) fuse_.guard(outputs->op, [&] { read_unwaited(outputs); });
}

void CollectiveReadings::on_unread(const std::string& sentence) {
  const std::lock_guard lock(mutex_);
  if (open_) collected_.unread.insert(sentence);
}

void CollectiveReadings::read_waited(Outputs& outputs) {
  if (outputs.future->hasError()) return count_failed();
  // The versions have changed: Gloo changes them, and so do writes to other views of the same buffer.
  outputs.versions = versions_of(outputs.tensors);
  keep_until_read(outputs.tensors);
  completed(outputs, Completion::done);
}

void CollectiveReadings::read_unwaited(const std::shared_ptr<Outputs>& outputs) {
  const auto future = std::exchange(outputs->future, {});
  // The received values may depend on this rank's next calls.
  if (outputs->op == "recv" || has_one_queue()) return count_untold(*outputs);
  read_when_complete(outputs, *future);
}

void CollectiveReadings::launched_with_others(const std::shared_ptr<Outputs>& outputs) {
  const std::lock_guard lock(mutex_);
  if (too_late(*outputs)) return;
  if (outputs->coalesced < first_coalesced_) {  // Its end was not seen, or the thread is another rank's.
    ++collected_.untold;
  } else {
    coalesced_[outputs->coalesced].push_back(outputs);
  }
}

void CollectiveReadings::on_coalesced(std::uint64_t number, CoalescedWork work) {
  std::vector<std::shared_ptr<Outputs>> calls;
  {
    const std::lock_guard lock(mutex_);
    const auto found = coalesced_.find(number);
    if (found == coalesced_.end()) return;
    calls = std::move(found->second);
    coalesced_.erase(found);
  }
  for (const auto& outputs : calls) {
    if (work == CoalescedWork::waited_for || (work == CoalescedWork::none && outputs->synchronous)) {
      fuse_.guard(outputs->op, [&] {
        keep_until_read(outputs->tensors);
        completed(*outputs, Completion::done);
      });
    } else {
      count_untold(*outputs);
    }
  }
}

void CollectiveReadings::count_untold(const Outputs& call) {
  const std::lock_guard lock(mutex_);
  if (!too_late(call)) ++collected_.untold;
}

void CollectiveReadings::count_failed() {
  const std::lock_guard lock(mutex_);
  ++collected_.failed;
}

void CollectiveReadings::read_when_complete(const std::shared_ptr<Outputs>& outputs,
                                            c10::ivalue::Future& future) {
  const auto callback = [self = shared_from_this(), outputs,
                         here = std::this_thread::get_id()](c10::ivalue::Future& completed) {
    const bool at_once = std::this_thread::get_id() == here;
    self->fuse_.guard(outputs->op, [&] { self->future_completed(*outputs, completed, at_once); });
    outputs->tensors.clear();
  };
  call_back(future, callback, 0);
}

void CollectiveReadings::future_completed(Outputs& outputs, c10::ivalue::Future& future, bool at_once) {
  if (future.hasError()) return completed(outputs, Completion::failed);
  const bool on_device = !devices_of(outputs.tensors).empty();
  if (on_device && !future.devices().empty()) return read_on_own_streams(outputs, future);
  // Gloo, tensors on a device: only streams of the completing thread wait for the copies.
  if (on_device && at_once) return count_untold(outputs);
  outputs.versions = versions_of(outputs.tensors);
  keep_until_read(outputs.tensors);
  completed(outputs, Completion::done);
}

void CollectiveReadings::read_on_own_streams(Outputs& outputs, c10::ivalue::Future& future) {
  if (has_no_tensor(future.constValue())) return count_untold(outputs);
  std::vector<c10::Stream> streams;
  for (const c10::Device& device : devices_of(outputs.tensors)) {
    const auto stream = ReadingStreams::instance().of(outputs.group, device);
    if (!stream) return count_untold(outputs);
    streams.push_back(*stream);
  }
  const c10::MultiStreamGuard guard(streams);
  future.wait();  // These streams wait; this thread does not, because the future is complete.
  keep_until_read(outputs.tensors);
  completed(outputs, Completion::done);
}

void CollectiveReadings::completed(Outputs& outputs, Completion completion) {
  if (completion == Completion::failed) return count_failed();
  {
    const std::lock_guard lock(mutex_);
    if (fuse_.tripped() || too_late(outputs)) return;
    ++reading_;
  }
  fuse_.guard(outputs.op, [&] { read_outputs(outputs); });
  const std::lock_guard lock(mutex_);
  if (--reading_ == 0) unread_.notify_all();
}

void CollectiveReadings::read_outputs(const Outputs& outputs) {
  std::vector<Reading> readings = read(outputs.tensors, outputs.op);
  if (versions_of(outputs.tensors) == outputs.versions) return store(outputs, "post", std::move(readings));
  const std::lock_guard lock(mutex_);
  ++collected_.changed;
}

void CollectiveReadings::check_finished_calls() {
  std::vector<std::shared_ptr<Outputs>> looked_at;  // polled without the lock: a Python Work takes the GIL
  {
    const std::lock_guard lock(mutex_);
    looked_at.swap(without_future_);
  }
  const auto complete = std::stable_partition(
      looked_at.begin(), looked_at.end(), [](const auto& outputs) { return !outputs->work->isCompleted(); });
  for (auto outputs = complete; outputs != looked_at.end(); ++outputs)
    completed(**outputs, (*outputs)->work->exception() ? Completion::failed : Completion::done);
  const std::lock_guard lock(mutex_);
  for (auto outputs = looked_at.begin(); outputs != complete; ++outputs) {
    if (!too_late(**outputs)) without_future_.push_back(std::move(*outputs));
  }
}

std::vector<Reading> CollectiveReadings::read(const std::vector<at::Tensor>& tensors, const std::string& op) {
  std::vector<Reading> readings(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) readings[i].read(tensors[i], eps_, op, fuse_);
  return readings;
}

bool CollectiveReadings::too_late(const Outputs& call) {
  const bool late = !open_ || call.step != step_;
  if (late) ++collected_.late;
  return late;
}

void CollectiveReadings::store(const Outputs& call, const char* direction, std::vector<Reading> readings) {
  const std::lock_guard lock(mutex_);
  if (too_late(call)) return;
  for (std::size_t i = 0; i < readings.size(); ++i) {
    const std::string name = call.op + "." + direction + "_" + std::to_string(i) + "@" + call.place;
    const auto [known, is_new] = row_of_.try_emplace({call.vpp_stage, name}, collected_.rows.size());
    if (is_new) collected_.rows.push_back({name, call.vpp_stage, {}});
    add_to_row(collected_.rows[known->second].readings, std::move(readings[i]));
  }
}

NativeCallSites::NativeCallSites(const std::vector<WatchedModule>& modules)
    : names_(module_names(modules)), indices_(module_indices(modules)) {}

CallSite NativeCallSites::here() const {
  CallSite site{"native", {}, 0};
  for (const std::size_t module : modules_around(indices_)) {
    const TargetName& name = names_[module];
    if (site.frames.empty()) site.vpp_stage = name.vpp_stage;
    site.frames.push_back(name.name.empty() ? "native" : "native[" + name.name + "]");
  }
  if (!site.frames.empty()) site.place = site.frames.front();
  return site;
}

CollectiveProbe::CollectiveProbe(const CollectiveSettings& settings, double eps,
                                 const std::vector<WatchedModule>& modules, StackSource stack,
                                 RecordStream& stream, HookFuse& fuse)
    : native_(std::make_shared<NativeCallSites>(modules)),
      needs_tracker_(!stack || std::any_of(modules.begin(), modules.end(),
                                           [](const WatchedModule& module) { return module.vpp_stage > 0; })),
      readings_(std::make_shared<CollectiveReadings>(
          settings, eps,
          [native = native_, stack = std::move(stack)] { return call_site_here(stack, *native); })),
      stream_(stream),
      fuse_(fuse) {}

CollectiveProbe::~CollectiveProbe() { disarm(); }

void CollectiveProbe::begin_step(Step, Readers) {
  readings_->open();
  observer_.emplace(readings_);
}

void CollectiveProbe::disarm() noexcept {
  if (!observer_) return;
  observer_.reset();
  readings_->close();
}

void CollectiveProbe::write_rows(RowWriter& rows) {
  const std::chrono::nanoseconds spent = readings_->fuse().hook_time();
  fuse_.add_time(spent - std::exchange(charged_, spent));
  if (const auto failure = readings_->fuse().failure())
    throw std::runtime_error(failure->target + ": " + failure->cause);
  CollectiveStep step = readings_->take();
  for (const std::string& sentence : step.unread) stream_.note_absence(sentence);
  for (const std::string& line : step.log) log_info("collective call " + line);
  std::uint64_t sequence = kFirstSequence;
  for (const CollectiveRow& row : step.rows) {
    const RowKey key{Kind::other, stream_.target_id(row.vpp_stage, row.name), sequence++};
    rows.write_folded(key, row.readings, row.name);
  }
  count(rows, step.late, "did not complete within its step");
  count(rows, step.failed, "failed");
  count(rows, step.untold, "nothing told within its step that it could be read");
  count(rows, step.changed, "its outputs were overwritten before or while they were read");
}

}  // namespace gradmon
