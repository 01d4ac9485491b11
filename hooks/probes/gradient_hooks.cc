// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/gradient_hooks.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "control/log.h"
#include "hooks/device/cuda_totals.h"
#include "hooks/observe/graph_node.h"
#include "hooks/probes/gradient_attachment.h"
#include "hooks/rows/read_ahead.h"
#include "hooks/rows/wrapper_tensor.h"
#include "hooks/stats/readable.h"

namespace gradmon {
namespace {

// Shared memory may be filled without a change of version: by the replay of a CUDA graph, whose gradient is
// the same memory in each step.
bool may_be_filled_unseen(const at::Tensor& gradient) {
  return !gradient.has_storage() || gradient.is_inference() || gradient.storage().use_count() > 1;
}

using torch::autograd::variable_list;

constexpr std::size_t kMostDeliveries = std::size_t{1} << 16;  // per parameter and step

constexpr const char* kShortStep = "the step had fewer micro batches than grad_acc_steps";
constexpr const char* kWasEmpty = "a lazy module gave the parameter its shape during the step";
constexpr const char* kCameUnseen =
    "no hook saw this rank accumulate it: only other ranks contributed, the program wrote it "
    "(torch.autograd.grad), or compiled autograd or a CUDA graph accumulated it";

// Gradient storage other than `grad`: Megatron's main_grad, FSDP2's accumulated gradient.
struct GradientElsewhere {
  MainGradient main;
  at::Tensor accumulated;  // UnshardedParameter::accumulated

  // May take the GIL: the caller must not hold a lock that a thread with the GIL may wait for.
  static GradientElsewhere of(const WatchedTensor& parameter) {
    GradientElsewhere elsewhere;
    if (parameter.main_gradient) elsewhere.main = parameter.main_gradient();
    if (parameter.sharding && parameter.sharding->unsharded)
      elsewhere.accumulated = parameter.sharding->unsharded().accumulated;
    return elsewhere;
  }
};

// The identity and the version of a parameter's gradient. Does not keep the gradient's memory. The identity
// is the memory's: torch.utils.swap_tensors() refuses a tensor with weak references.
class GradientMark {
 public:
  // Empty if the parameter has no gradient.
  static std::optional<GradientMark> of(const at::Tensor& parameter) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) return std::nullopt;
    return GradientMark(gradient);
  }

  // Compares the identity only, not the version.
  bool same_gradient(const GradientMark& other) const {
    return memory_ == other.memory_ && tensor_ == other.tensor_;
  }
  bool operator==(const GradientMark& other) const {
    return same_gradient(other) && version_ == other.version_;
  }

 private:
  explicit GradientMark(const at::Tensor& gradient) : version_(version_of(gradient).value_or(0)) {
    const c10::Storage& memory = gradient.unsafeGetTensorImpl()->unsafe_storage();
    if (memory) {
      memory_ = memory.getWeakStorageImpl();
    } else {
      tensor_ = c10::weak_intrusive_ptr<c10::TensorImpl>(gradient.getIntrusivePtr());
    }
  }

  static c10::weak_intrusive_ptr<c10::StorageImpl> no_memory() {
    return c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>());
  }
  static c10::weak_intrusive_ptr<c10::TensorImpl> no_tensor() {
    return c10::weak_intrusive_ptr<c10::TensorImpl>(c10::intrusive_ptr<c10::TensorImpl>());
  }

  c10::weak_intrusive_ptr<c10::StorageImpl> memory_ = no_memory();
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor_ = no_tensor();  // only without storage, as a sparse tensor
  std::uint32_t version_;
};

// The armed hooks of the process.
struct ArmedHooks {
  std::mutex mutex;
  std::vector<GradientHooks*> all;  // guarded by mutex
};

ArmedHooks& armed_hooks() {
  static auto* const only = new ArmedHooks;  // Never destroyed: threads may outlive main().
  return *only;
}

}  // namespace

class MicroBatches::End {
 public:
  End(std::shared_ptr<MicroBatches> micro_batches, Task task)
      : micro_batches_(std::move(micro_batches)), task_(task) {}
  ~End() { micro_batches_->ended(task_); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

 private:
  const std::shared_ptr<MicroBatches> micro_batches_;
  const Task task_;
};

void MicroBatches::begin_step() {
  const bool within_a_pass = current_task() != nullptr;
  const std::lock_guard lock(mutex_);
  if (!within_a_pass) open_.clear();
  count_ = open_.empty() ? 0 : 1;
  begins_without_pass_ = false;
}

int MicroBatches::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

void MicroBatches::begin_without_pass() {
  const std::lock_guard lock(mutex_);
  ++count_;
  begins_without_pass_ = true;
}

MicroBatches::Place MicroBatches::enter() {
  const Task task = current_task();
  bool unknown = false;
  Place place;
  {
    const std::lock_guard lock(mutex_);
    if (task != nullptr) {
      place.begins = open_.empty();
      unknown = open_.insert(task).second;
      if (place.begins) ++count_;
    } else {
      place.begins = std::exchange(begins_without_pass_, false);
    }
    place.index = std::max(count_ - 1, 0);
  }
  if (unknown) await_end(task);
  return place;
}

MicroBatches::Task MicroBatches::current_task() {
  return torch::autograd::get_current_graph_task_nodes_in_graph();
}

void MicroBatches::await_end(Task task) {
  auto end = std::make_shared<End>(shared_from_this(), task);
  torch::autograd::Engine::get_default_engine().queue_callback([end] { static_cast<void>(end); });
}

void MicroBatches::ended(Task task) noexcept {
  const Task around = current_task();
  try {
    if (around != nullptr && around != task && follow(around)) await_end(around);
  } catch (const std::exception&) {
    // The enclosing pass then counts as ended, too.
  }
  const std::lock_guard lock(mutex_);
  open_.erase(task);
}

bool MicroBatches::follow(Task task) {
  const std::lock_guard lock(mutex_);
  return open_.insert(task).second;
}

class GradientHooks::Slot final : public GradientListener {
 public:
  Slot(std::size_t parameter, GradientHooks& hooks)
      : watched_(hooks.watched_[parameter]),
        hooks_(hooks),
        micro_batches_(*hooks.micro_batches_[watched_.vpp_stage]),
        parameter_(parameter),
        attachment_(
            watched_,
            hooks.settings_.reads == GradientReads::each_micro_batch && reads_for(hooks.settings_.readers),
            *this, hooks.fuse_) {}
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  void refresh() { gathers() ? attachment_.detach() : attachment_.refresh(); }  // gathered() attaches again

  void release_hooks() noexcept { gathers() ? attachment_.detach() : attachment_.release(); }

  bool is_of_chunk(const Slot& other) const { return watched_.vpp_stage == other.watched_.vpp_stage; }
  bool is_of(const void* unit) const { return gathers() && watched_.sharding->unit == unit; }

  void gathered() {
    if (!watched_.tensor->requires_grad()) return;  // frozen, with others in a flat tensor
    const at::Tensor leaf = watched_.sharding->unsharded().tensor;
    if (!leaf.defined() || !leaf.is_leaf() || !leaf.requires_grad() || leaf.numel() == 0) return;
    const std::lock_guard lock(mutex_);
    attachment_.attach_to(leaf);
  }

  void begin_step() {
    const std::lock_guard lock(mutex_);
    reads_ = reads_for(hooks_.active_) ? hooks_.settings_.reads : GradientReads::nothing;
    delivered_ = fired_ = left_unread_ = has_non_zeros_ = looked_unseen_ = came_unseen_ = false;
    was_empty_ = watched_.tensor->numel() == 0;
    undecided_.clear();
    forget_rare();
    deliveries_.begin_step();
    before_ = GradientMark::of(*watched_.tensor);
    seen_.reset();
  }

  void delivered(const variable_list& inputs) noexcept override {
    delivered(inputs.empty() ? at::Tensor() : inputs[0]);
  }

  bool took_part() {
    const std::lock_guard lock(mutex_);
    if (took_part_for_certain()) return true;
    const auto now = GradientMark::of(*watched_.tensor);
    const bool unchanged = now && before_ && *before_ == *now;
    const bool seen = !unchanged || hooks_.any_arrived_.load(std::memory_order_relaxed);
    if (!now || (unchanged && (seen || std::exchange(looked_unseen_, true)))) return !undecided_.empty();
    const auto stats =
        start_tensor_stats(watched_.part_of(watched_.tensor->grad()), hooks_.settings_.options.eps);
    if (!stats || (!stats->pending && !has_only_zeros(stats->stats))) {
      has_non_zeros_ = has_non_zeros_ || unchanged;
      came_unseen_ = true;
      return true;
    }
    if (stats->pending) undecided_.push_back(stats->pending);
    before_ = now;
    return !undecided_.empty();
  }

  // After close(), as the next ones.
  UnlessZeros unless_zeros() const { return took_part_for_certain() ? UnlessZeros{} : undecided_; }

  // For the delivery's own row: in a flat tensor, a reading of zeros alone is dropped.
  UnlessZeros unless_zeros(const GradientDelivery& delivery) const {
    if (!in_flat_tensor()) return unless_zeros();
    return delivery.reading.pending ? UnlessZeros{delivery.reading.pending} : UnlessZeros{};
  }

  // An optimizer is about to use the gradient. Later deliveries count only if another update follows in this
  // step.
  void before_update() {
    const std::lock_guard lock(mutex_);
    if (deliveries_.unused()) left_unread_ = is_postponed();
    forget_rare();
    if (reads_ == GradientReads::last_of_step) deliveries_.keep_last_of_two();
    deliveries_.mark_used();
  }

  // Makes a postponed reading now, unless this pass will deliver to the parameter.
  void read_postponed() {
    const auto elsewhere = GradientElsewhere::of(watched_);
    const std::lock_guard lock(mutex_);
    if (!is_postponed() || reaches(leaf())) return;
    if (gathers() || *rare_->postponed == GradientMark::of(leaf())) return read_accumulated(elsewhere);
    rare_->postponed.reset();
    unused_delivery().reading.mark_not_applicable("the program changed the gradient between micro batches");
  }

  // The reason why a gradient has no grad_unreduced; null if it has one, or if the parameter took no part.
  const char* why_unread() const {
    if (reads_ == GradientReads::nothing) return nullptr;
    if (left_unread_ || (is_postponed() && !deliveries_.updated())) return kShortStep;
    if (!came_unseen_ || delivered_ || watched_.gradient_source != UnreducedSource::accumulator)
      return nullptr;
    if (watched_.sharding && !watched_.sharding->no_unreduced.empty()) return nullptr;  // already reported
    return was_empty_ ? kWasEmpty : kCameUnseen;
  }

  // For a parameter whose gradient a framework passes. No elements: the gradient exists but was not seen.
  void deliver(const at::Tensor& gradient) noexcept {
    if (!armed() || hooks_.fuse_.tripped()) return;
    if (gradient.defined() && gradient.numel() == 0 && watched_.tensor->numel() != 0)
      return run_if_armed([this] { has_non_zeros_ = true; });
    if (!takes_deliveries()) return;
    hooks_.any_arrived_.store(true, std::memory_order_relaxed);
    hooks_.fuse_.guard(watched_.name, [&] {
      run_if_armed([&] {
        if (!gradient.defined()) return leave_out_accumulated();
        hooks_.count_pass(*this);
        if (reads_ == GradientReads::nothing) {
          delivered_ = delivered_ || watched_.gradient_source == UnreducedSource::delivered;
          return;
        }
        const bool is_proof = watched_.gradient_source == UnreducedSource::delivered;
        const bool took_part = delivered_ || is_proof;
        const bool certain = took_part_for_certain() || is_proof;
        GradientDelivery& delivery = micro_batch_delivery();
        // With its own version, because gloo's thread may write other parts of an engine's buffer.
        take(delivery, gradient.variable_data());
        delivered_ = took_part || (delivery.reading.has_value && !has_only_zeros(delivery.reading.stats));
        if (!certain && delivery.reading.pending) undecided_.push_back(delivery.reading.pending);
      });
    });
  }

  bool has_leaf_in(const std::unordered_set<const void*>& leaves) const {
    return leaf().defined() && leaves.count(leaf().unsafeGetTensorImpl()) > 0;
  }
  MicroBatches& micro_batches() const { return micro_batches_; }

  // Called after an accumulation. Since torch 2.7 also called by a pass that has delivered no gradient, which
  // does not change the mark.
  void accumulated() noexcept override {
    if (!armed()) return;
    hooks_.ask_for_next(parameter_);
    const at::Tensor& gradient = leaf().grad();
    {
      const std::lock_guard lock(mutex_);
      if (!armed()) return;
      auto now = GradientMark::of(leaf());
      const auto& last = seen_ ? seen_ : before_;
      if (!now || (now == last && !may_be_filled_unseen(gradient))) return;
      seen_ = std::move(now);
    }
    delivered(gradient);
  }

  // Call it while disarmed. Waits for a hook that runs; from now on none changes the slot until the next
  // step.
  void close() const { const std::lock_guard lock(mutex_); }

  // Passes the deliveries that an update has used; all deliveries if no update came.
  template <typename Take>
  void each_delivery(Take take) const {
    if (delivered_) deliveries_.each_used(take);  // else only zeros were delivered
  }

 private:
  bool reads_for(Readers readers) const {
    return (watched_.readers_for(Kind::grad_unreduced) & readers) != 0;
  }
  // True if forward uses another tensor than the one that the optimizer holds.
  bool gathers() const { return watched_.sharding && watched_.sharding->unsharded; }
  // A flat tensor's accumulator fires for all its parameters; parameters that took no part have zeros there.
  bool in_flat_tensor() const { return watched_.sharding && watched_.sharding->unsharded_run; }
  // Call it with mutex_ held.
  bool took_part_for_certain() const {
    return has_non_zeros_ || (delivered_ && !in_flat_tensor() && (fired_ || undecided_.empty()));
  }
  const at::Tensor& leaf() const { return attachment_.leaf(); }

  struct Rare;
  Rare& rare() {
    if (!rare_) rare_ = std::make_unique<Rare>();
    return *rare_;
  }
  bool is_postponed() const { return rare_ && rare_->postponed; }
  void forget_rare() {
    if (!rare_) return;
    rare_->last_mark.reset();
    rare_->postponed.reset();
    rare_->moved_to_main = false;
  }

  void delivered(const at::Tensor& received) noexcept {
    if (!armed() || hooks_.fuse_.tripped()) return;
    hooks_.fuse_.guard(watched_.name, [&] {
      const auto elsewhere = GradientElsewhere::of(watched_);
      if (!received.defined() && !elsewhere.main.fused_accumulation) return;  // no gradient was delivered
      hooks_.any_arrived_.store(true, std::memory_order_relaxed);
      const auto on_arrival = [this](auto&& body) {
        run_if_armed([&] {
          fired_ = true;
          hooks_.count_pass(*this);
          body();
        });
      };
      if (attachment_.overtaken()) return on_arrival([&] { leave_out_overtaken(); });
      switch (reads_) {
        case GradientReads::nothing:
          return on_arrival([&] { delivered_ = true; });
        case GradientReads::last_of_step:
          if (takes_deliveries()) return on_arrival([&] { delivered_ = true; });
          if (hooks_.settings_.micro_batches == 1) return on_arrival([&] { read_accumulated(elsewhere); });
          on_arrival([] {});
          return read_or_postpone(elsewhere);
        case GradientReads::each_micro_batch:
          return on_arrival([&] { read_micro_batch(received, elsewhere); });
      }
    });
  }

  void leave_out_overtaken() {
    delivered_ = true;
    if (rare_) rare_->postponed.reset();
    if (reads_ == GradientReads::nothing || takes_deliveries()) return;
    micro_batch_delivery().reading.mark_not_applicable(
        "a post-accumulate hook that came during this step may have changed the gradient");
  }

  // The last delivered gradient also holds the micro batches before it.
  void leave_out_accumulated() {
    GradientDelivery* const last = deliveries_.unused();
    if (reads_ != GradientReads::each_micro_batch || last == nullptr || last->micro_step == 0) return;
    last->reading.mark_not_applicable(
        "the framework accumulates the micro batches, so the gradient of one cannot be read");
  }

  // True if deliver() reads the gradient, instead of a hook of the accumulator.
  bool takes_deliveries() const {
    if (watched_.gradient_source != UnreducedSource::delivered_accumulated)
      return watched_.gradient_source == UnreducedSource::delivered;
    return reads_ != GradientReads::each_micro_batch;
  }

  // The delivery of a passed gradient.
  GradientDelivery& micro_batch_delivery() {
    if (reads_ == GradientReads::last_of_step) return unused_delivery();
    const int micro_step = micro_batches_.enter().index;
    GradientDelivery* const known = delivery_in(micro_step);
    return known ? *known : next(micro_step);
  }

  bool armed() const { return hooks_.armed_.load(std::memory_order_acquire); }

  // Runs `body` on one thread at a time, and not after the step has ended.
  template <typename Body>
  void run_if_armed(Body&& body) {
    const std::lock_guard lock(mutex_);
    if (!armed()) return;
    body();
    // took_part() has no more use for it; its memory can be the next gradient's.
    if (took_part_for_certain() && !in_flat_tensor()) before_.reset();
  }

  void read_or_postpone(const GradientElsewhere& elsewhere) {
    const MicroBatches::Place place = micro_batches_.enter();
    const std::lock_guard others(hooks_.mutex_);
    if (place.begins && place.index + 1 == hooks_.settings_.micro_batches)
      hooks_.begin_last_micro_batch(*this);
    run_if_armed([&] { hooks_.skips(place.index) ? postpone() : read_accumulated(elsewhere); });
  }

  void postpone() {
    detect_moved_gradient();
    unused_delivery().reading.has_value = false;
    rare().postponed.emplace(GradientMark::of(leaf()));
  }

  void read_accumulated(const GradientElsewhere& elsewhere) {
    detect_moved_gradient();
    if (rare_) rare_->postponed.reset();
    read(unused_delivery(), elsewhere);
  }

  void read_micro_batch(const at::Tensor& received, const GradientElsewhere& elsewhere) {
    const int micro_step = micro_batches_.enter().index;
    if (GradientDelivery* const known = delivery_in(micro_step)) {
      hooks_.repeated_.store(true, std::memory_order_relaxed);
      return read(*known, elsewhere);
    }
    GradientDelivery& delivery = next(micro_step);
    if (!within_backward())
      return delivery.reading.mark_not_applicable(
          "the program adds each micro batch's gradient to the earlier ones itself, outside backward()");
    if (elsewhere.main.fused_accumulation)
      return delivery.reading.mark_not_applicable(
          "a fused kernel adds each micro batch to main_grad directly, so the gradient of one micro batch "
          "cannot be read");
    take(delivery, received);
  }

  // Detects that the gradient seen after the previous delivery of this step is gone: the program has added it
  // to the main gradient in between.
  void detect_moved_gradient() {
    if (!watched_.main_gradient) return;
    const auto now = GradientMark::of(leaf());
    std::optional<GradientMark>& last = rare().last_mark;
    if (delivered_ && last && !(now && now->same_gradient(*last))) rare_->moved_to_main = true;
    last = now;
  }

  // If a hook adds the gradient to the main gradient, it has already released the gradient here.
  void read(GradientDelivery& delivery, const GradientElsewhere& elsewhere) {
    const at::Tensor& own = leaf().grad();
    const MainGradient& main = elsewhere.main;
    if (elsewhere.accumulated.defined()) return take_sum(delivery, elsewhere.accumulated, own);
    if (main.tensor.defined() && (main.fused_accumulation || !own.defined()))
      return take(delivery, main.tensor);
    if (rare_ && rare_->moved_to_main)
      return delivery.reading.mark_not_applicable(
          "the program moves the gradient to main_grad after each backward");
    take(delivery, own);
  }

  // For last_of_step: the delivery that the next update will use.
  GradientDelivery& unused_delivery() {
    GradientDelivery* const unused = deliveries_.unused();
    return unused ? *unused : next(0);
  }

  // For each_micro_batch: the delivery of this micro batch; null if it would be the first one.
  GradientDelivery* delivery_in(int micro_step) {
    GradientDelivery* const unused = deliveries_.unused();
    return unused && unused->micro_step == micro_step ? unused : nullptr;
  }

  GradientDelivery& next(int micro_step) {
    delivered_ = true;
    if (hooks_.limit_.reached(deliveries_.count())) return rare().left_out;
    GradientDelivery& delivery = deliveries_.add();
    delivery.parameter = parameter_;
    delivery.arrival = hooks_.arrivals_.fetch_add(1, std::memory_order_relaxed) + 1;
    delivery.micro_step = micro_step;
    return delivery;
  }

  // A sample does not tell if all elements are zeros.
  ReadOptions options() const {
    const bool by_zeros = in_flat_tensor() || watched_.gradient_source != UnreducedSource::accumulator;
    const ReadOptions& wanted = hooks_.settings_.options;
    return by_zeros ? wanted.whole() : wanted.for_rows(watched_, Kind::grad_unreduced);
  }

  // If another thread adds to the gradient during the reading, its own delivery reads again.
  void take(GradientDelivery& delivery, const at::Tensor& gradient) {
    Reading& reading = delivery.reading;
    reading.has_value = false;
    if (!gradient.defined()) return;
    const ParameterSharding* sharding = watched_.sharding.get();
    at::Tensor own = gradient;
    if (sharding != nullptr && sharding->unsharded_run) {
      own = run_of(gradient, *sharding->unsharded_run);
      if (!own.defined())
        return reading.mark_not_applicable("FSDP's flat gradient is too short or not contiguous");
      own = own.view(sharding->unsharded_sizes);
    }
    reading.read(own, options(), watched_.name, hooks_.fuse_, hooks_.scale(watched_.vpp_stage));
    if (sharding != nullptr && !reading.scope) reading.scope = sharding->unreduced_scope;
    if (!in_flat_tensor()) return;
    has_non_zeros_ = reading.has_value && !reading.pending && !has_only_zeros(reading.stats);
    if (reading.pending) return undecided_.push_back(reading.pending);
    reading.has_value = has_non_zeros_;
  }

  // FSDP2 with a reduce type adds each micro batch's gradient to a tensor of that type.
  void take_sum(GradientDelivery& delivery, const at::Tensor& accumulated, const at::Tensor& own) {
    if (!own.defined()) return take(delivery, accumulated);
    const Unwrapped kept = unwrapped(accumulated);
    const Unwrapped added = unwrapped(own);
    if (!kept.tensor.defined() || !added.tensor.defined())
      return delivery.reading.mark_not_applicable(kept.why.empty() ? added.why : kept.why);
    if (std::string why = why_captured(kept.tensor.device()); !why.empty())
      return delivery.reading.mark_not_applicable(std::move(why));
    const c10::NoGradGuard no_grad;
    take(delivery, kept.tensor + added.tensor);
    if (kept.scope) delivery.reading.scope = kept.scope;
  }

  // Parts of the state that few parameters need.
  struct Rare {
    // After the last delivery; for parameters with a main gradient only.
    std::optional<GradientMark> last_mark;
    bool moved_to_main = false;  // in this step: see detect_moved_gradient()
    // Mark after the last unread delivery; unset if there was none.
    std::optional<std::optional<GradientMark>> postponed;
    GradientDelivery left_out;  // delivery after kMostDeliveries; has no row
  };

  const WatchedTensor& watched_;
  GradientHooks& hooks_;
  MicroBatches& micro_batches_;  // of the parameter's chunk
  const std::size_t parameter_;
  GradientReads reads_ = GradientReads::nothing;  // in this step; changes only while disarmed

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  bool delivered_ = false;
  bool fired_ = false;          // the accumulator
  bool has_non_zeros_ = false;  // flat tensor: in the last reading; else: in a gradient that no hook saw
  bool looked_unseen_ = false;  // took_part() has looked for a gradient that no hook saw
  bool came_unseen_ = false;    // took_part() has found a gradient that no hook saw
  bool was_empty_ = false;      // the parameter was empty when the step began
  bool left_unread_ = false;    // the last update used a gradient that had not been read
  std::optional<GradientMark> before_;
  std::optional<GradientMark> seen_;  // by accumulated(), in this step
  UnlessZeros undecided_;             // in this step: gradients that a device is still comparing with 0
  GradientDeliveries deliveries_;
  std::unique_ptr<Rare> rare_;

  GradientAttachment attachment_;  // changed by the training thread only
};

GradientHooks::GradientHooks(const std::vector<WatchedTensor>& watched, GradientHookSettings settings,
                             HookFuse& fuse)
    : watched_(watched),
      fuse_(fuse),
      settings_(settings),
      limit_(kMostDeliveries, "gradients of a parameter"),
      next_(watched.size()) {
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    auto& micro_batches = micro_batches_[watched_[i].vpp_stage];
    if (!micro_batches) micro_batches = std::make_shared<MicroBatches>();
    slots_.push_back(std::make_unique<Slot>(i, *this));
  }
}

GradientHooks::~GradientHooks() { disarm(); }

void GradientHooks::release_hooks() noexcept {
  for (const auto& slot : slots_) slot->release_hooks();
}

void GradientHooks::begin_step(Step step, Readers active) {
  active_ = active & settings_.readers;
  settings_.options.step = step.value;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    ask_for_gradients_after(watched_, i);
    ask_for_slot_after(i);
    slots_[i]->refresh();
    slots_[i]->begin_step();
  }
  leader_.store(nullptr, std::memory_order_relaxed);
  arrivals_.store(0, std::memory_order_relaxed);
  any_arrived_.store(false, std::memory_order_relaxed);
  for (auto& [vpp_stage, passes] : micro_batches_) passes->begin_step();
  armed_.store(true, std::memory_order_release);
  const std::lock_guard lock(armed_hooks().mutex);
  auto& all = armed_hooks().all;
  if (std::find(all.begin(), all.end(), this) == all.end()) all.push_back(this);
}

void GradientHooks::disarm() noexcept {
  armed_.store(false, std::memory_order_release);
  const std::lock_guard lock(armed_hooks().mutex);
  auto& all = armed_hooks().all;
  all.erase(std::remove(all.begin(), all.end(), this), all.end());
}

void GradientHooks::accumulated(const std::unordered_set<const void*>& leaves) noexcept {
  fuse_.guard("", [&] {
    std::vector<Slot*> found;
    std::unordered_set<MicroBatches*> begun;
    for (const auto& slot : slots_) {
      if (!slot->has_leaf_in(leaves)) continue;
      found.push_back(slot.get());
      if (begun.insert(&slot->micro_batches()).second) slot->micro_batches().begin_without_pass();
    }
    for (Slot* const slot : found) slot->accumulated();
  });
}

void GradientHooks::gathered(const void* unit) {
  for (const auto& slot : slots_) {
    if (slot->is_of(unit)) slot->gathered();
  }
}

void GradientHooks::count_pass(const Slot& delivered) noexcept {
  const Slot* leader = nullptr;
  if (!settings_.passes || (active_ & kForRows) == 0) return;
  if (leader_.compare_exchange_strong(leader, &delivered) || leader == &delivered)
    settings_.passes->backward();
}

void GradientHooks::begin_last_micro_batch(const Slot& delivered) {
  for (const auto& slot : slots_) {
    if (slot.get() != &delivered && slot->is_of_chunk(delivered)) slot->read_postponed();
  }
}

void GradientHooks::deliver(std::size_t parameter, const at::Tensor& gradient) noexcept {
  slots_[parameter]->deliver(gradient);
}

bool GradientHooks::took_part(std::size_t parameter) { return slots_[parameter]->took_part(); }

UnlessZeros GradientHooks::unless_zeros(std::size_t parameter) const {
  return slots_[parameter]->unless_zeros();
}

void GradientHooks::before_update(const Update& update) {
  for (const std::size_t i : update.parameter_indices) {
    ask_for_slot_after(i);
    slots_[i]->before_update();
  }
}

void GradientHooks::write_rows(RowWriter& rows) {
  for (const auto& slot : slots_) slot->close();
  if (settings_.reads == GradientReads::nothing) return;
  std::uint64_t sequence = 0;
  order_deliveries();
  for (std::size_t i = 0; i < ordered_.size(); ++i) {
    constexpr std::size_t ahead = 8;
    const GradientDelivery* const delivery = ordered_[i];
    if (i + ahead < ordered_.size()) ask_for(ordered_[i + ahead], sizeof *delivery);
    const WatchedTensor& parameter = watched_[delivery->parameter];
    const Readers readers = parameter.readers_for(Kind::grad_unreduced) & active_;
    rows.write({Kind::grad_unreduced, parameter.target, sequence++, delivery->micro_step, 0, readers},
               delivery->reading, parameter.name, slots_[delivery->parameter]->unless_zeros(*delivery));
  }
  count_unread(rows);
  if (!repeated_.load(std::memory_order_relaxed) || std::exchange(repeats_logged_, true)) return;
  log_warn(
      "a parameter received several gradients in one micro batch; its grad_unreduced rows hold the gradient "
      "accumulated in the step so far");
}

void GradientHooks::order_deliveries() {
  ordered_.assign(arrivals_.load(std::memory_order_relaxed), nullptr);
  for (const auto& slot : slots_) {
    slot->each_delivery([&](const GradientDelivery& delivery) {
      if (delivery.arrival > ordered_.size())
        ordered_.resize(delivery.arrival);  // from a hook that ran until now
      ordered_[delivery.arrival - 1] = &delivery;
    });
  }
  ordered_.erase(std::remove(ordered_.begin(), ordered_.end(), nullptr), ordered_.end());
  for (std::size_t i = 1; i < ordered_.size(); ++i)
    next_[ordered_[i - 1]->parameter].store(ordered_[i]->parameter, std::memory_order_relaxed);
}

void GradientHooks::ask_for_slot_after(std::size_t parameter) const noexcept {
  constexpr std::size_t ahead = 4;
  if (parameter + ahead < slots_.size()) ask_for(slots_[parameter + ahead].get(), sizeof(Slot));
}

void GradientHooks::ask_for_next(std::size_t parameter) const noexcept {
  const std::size_t next = next_[parameter].load(std::memory_order_relaxed);
  ask_for(slots_[next].get(), sizeof(Slot));
  ask_for(&watched_[next], sizeof(WatchedTensor));
}

void GradientHooks::count_unread(RowWriter& rows) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const char* const why = slots_[i]->why_unread();
    if (why == nullptr) continue;
    const bool is_row = (watched_[i].readers_for(Kind::grad_unreduced) & active_ & kForRows) != 0;
    const auto target = is_row ? std::optional(watched_[i].target) : std::nullopt;
    if (why == kCameUnseen) {
      if (target) rows.note_reason(Kind::grad_unreduced, *target, why);
      continue;
    }
    rows.count_not_applicable(Kind::grad_unreduced, target, watched_[i].name, why);
    if (why == kShortStep) settings_.micro_batches = 1;
  }
}

void note_accumulated(const std::vector<at::Tensor>& leaves) noexcept {
  std::unordered_set<const void*> found;
  for (const at::Tensor& leaf : leaves) found.insert(leaf.unsafeGetTensorImpl());
  const std::lock_guard lock(armed_hooks().mutex);
  for (GradientHooks* const hooks : armed_hooks().all) hooks->accumulated(found);
}

}  // namespace gradmon
