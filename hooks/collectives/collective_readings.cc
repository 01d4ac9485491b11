// SPDX-License-Identifier: Apache-2.0
#include "hooks/collectives/collective_readings.h"

#include <ATen/core/ivalue_inl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <exception>
#include <optional>
#include <typeinfo>
#include <utility>

#include "hooks/device/device_scalars.h"
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

// What the program frees after it has waited for the work is not reused before it is read.
void keep_until_read(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    const auto stream = tensor.defined() ? current_stream(tensor.device()) : std::nullopt;
    if (!stream || !tensor.has_storage()) continue;
    try {
      c10::impl::VirtualGuardImpl(tensor.device().type())
          .recordDataPtrOnStream(tensor.storage().data_ptr(), *stream);
    } catch (const c10::Error&) {  // Memory of another library, which torch does not free.
    }
  }
}

bool any_on_device(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return tensor.defined() && !tensor.is_cpu(); });
}

// A future's callback runs on streams that wait for the tensors of its value alone. NCCL's of calls with
// unequal sizes has none, and is complete before anything is sent.
bool has_no_tensor(const c10::IValue& value) {
  return value.isNone() || (value.isTensorList() && value.toTensorList().empty());
}

// A row with a reading that is not applicable is not applicable as a whole.
void add_to_row(std::vector<Reading>& row, Reading reading) {
  if (row.size() < CollectiveReadings::kMostCalls) return row.push_back(std::move(reading));
  row.front().mark_not_applicable("one step has more than " + std::to_string(CollectiveReadings::kMostCalls) +
                                  " calls from this line");
}

std::string log_line(const CollectiveCall& call, const CallSite& site) {
  std::string text = call.op + "@" + site.place + ": " + shapes_text(call.inputs) + " -> " +
                     shapes_text(call.outputs) + "; " + call.group + ", rank " +
                     std::to_string(call.group_rank) + " of " + std::to_string(call.group_size);
  for (std::size_t i = 0; i < site.frames.size(); ++i) text += (i == 0 ? "; " : " < ") + site.frames[i];
  return text;
}

}  // namespace

class CollectiveReadings::Launch : public CollectiveListener::CallScope {
 public:
  Launch(std::shared_ptr<CollectiveReadings> readings, std::shared_ptr<Outputs> outputs)
      : readings_(std::move(readings)), outputs_(std::move(outputs)) {}

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
  fuse_.guard("a collective call", [&] { check_finished_calls(); });
  std::vector<std::shared_ptr<Outputs>> incomplete;  // released without the lock
  decltype(coalesced_) not_over;
  std::unique_lock lock(mutex_);
  unread_.wait(lock, [&] { return reading_ == 0; });
  open_ = false;
  incomplete.swap(without_future_);
  not_over.swap(coalesced_);
  collected_.late += incomplete.size();
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
  if (!call_sites_.select(site)) return nullptr;
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
  if (settings_.inputs) store(*outputs, "pre", read(call.inputs, call.op));
  if (call.outputs.empty()) return nullptr;
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
  outputs->versions = versions_of(outputs->tensors);  // a backend without futures does not change them
  if (outputs->coalesced != 0) return launched_with_others(outputs);
  if (!work) return outputs->synchronous ? completed(*outputs, Completion::done) : count_untold(*outputs);
  const std::type_index sort(typeid(*work));
  {
    const std::lock_guard lock(mutex_);
    if (too_late(*outputs)) return;
    if (futureless_.count(sort) != 0) return poll(outputs, work);
  }
  if (add_callback(outputs, *work)) return;
  const std::lock_guard lock(mutex_);
  futureless_.insert(sort);
  poll(outputs, work);
}

void CollectiveReadings::poll(const std::shared_ptr<Outputs>& outputs,
                              const c10::intrusive_ptr<c10d::Work>& work) {
  if (any_on_device(outputs->tensors)) {
    ++collected_.untold;
  } else {
    outputs->work = work;
    without_future_.push_back(outputs);
  }
}

void CollectiveReadings::launched_with_others(const std::shared_ptr<Outputs>& outputs) {
  const std::lock_guard lock(mutex_);
  if (too_late(*outputs)) return;
  if (outputs->coalesced < first_coalesced_) {  // An end that nobody has seen, or another rank's thread.
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

bool CollectiveReadings::add_callback(const std::shared_ptr<Outputs>& outputs, c10d::Work& work) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  try {
    future = work.getFuture();
  } catch (const std::exception&) {  // not every type of work has a future
  }
  if (!future) return false;
  future->addCallback([self = shared_from_this(), outputs](c10::ivalue::Future& completed) {
    const auto completion = completed.hasError() ? Completion::failed : Completion::done;
    self->fuse_.guard(outputs->op, [&] {
      if (completion == Completion::done && any_on_device(outputs->tensors) &&
          has_no_tensor(completed.constValue()))
        return self->count_untold(*outputs);
      outputs->versions = versions_of(outputs->tensors);
      keep_until_read(outputs->tensors);
      self->completed(*outputs, completion);
    });
    outputs->tensors.clear();
  });
  return true;
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
  std::vector<std::shared_ptr<Outputs>> looked_at;  // asked without the lock: a Python Work takes the GIL
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

}  // namespace gradmon
