// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradients/micro_batches.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>
#include <utility>

namespace gradmon {

class MicroBatches::Passes : public std::enable_shared_from_this<Passes> {
 public:
  void begin_step() {
    const bool within_a_pass = current_task() != nullptr;
    const std::lock_guard lock(mutex_);
    if (!within_a_pass) open_.clear();
    count_ = open_.empty() ? 0 : 1;
    begins_without_pass_ = false;
  }

  int count() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }

  void begin_without_pass() {
    const std::lock_guard lock(mutex_);
    ++count_;
    begins_without_pass_ = true;
  }

  Place enter() {
    const Task task = current_task();
    bool begins = false;
    bool unknown = false;
    Place place;
    {
      const std::lock_guard lock(mutex_);
      if (task != nullptr) {
        begins = open_.empty();
        unknown = open_.insert(task).second;
        if (begins) ++count_;
      } else {
        begins = std::exchange(begins_without_pass_, false);
      }
      place = {std::max(count_ - 1, 0), begins};
    }
    if (unknown) await_end_of(task);
    return place;
  }

 private:
  using Task = const void*;  // the address of a member identifies the engine's graph task

  class End {
   public:
    End(std::shared_ptr<Passes> passes, Task task) : passes_(std::move(passes)), task_(task) {}
    ~End() { passes_->ended(task_); }
    End(const End&) = delete;
    End& operator=(const End&) = delete;

   private:
    const std::shared_ptr<Passes> passes_;
    const Task task_;
  };

  static Task current_task() { return torch::autograd::get_current_graph_task_nodes_in_graph(); }

  // Never call it with mutex_ held: if the engine refuses the callback, ~End runs at once and locks mutex_.
  void await_end_of(Task task) {
    auto end = std::make_shared<End>(shared_from_this(), task);
    torch::autograd::Engine::get_default_engine().queue_callback([end] { static_cast<void>(end); });
  }

  void ended(Task task) noexcept {
    const Task around = current_task();
    try {
      if (around != nullptr && around != task && follow(around)) await_end_of(around);
    } catch (const std::exception&) {
      // The enclosing pass then counts as ended, too.
    }
    const std::lock_guard lock(mutex_);
    open_.erase(task);
  }

  bool follow(Task task) {
    const std::lock_guard lock(mutex_);
    return open_.insert(task).second;
  }

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::unordered_set<Task> open_;
  int count_ = 0;
  bool begins_without_pass_ = false;  // until the next enter()
};

MicroBatches::MicroBatches() : passes_(std::make_shared<Passes>()) {}
MicroBatches::~MicroBatches() = default;

void MicroBatches::begin_step() { passes_->begin_step(); }
int MicroBatches::count() const { return passes_->count(); }
MicroBatches::Place MicroBatches::enter() { return passes_->enter(); }
void MicroBatches::begin_without_pass() { passes_->begin_without_pass(); }

}  // namespace gradmon
