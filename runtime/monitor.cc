// SPDX-License-Identifier: Apache-2.0
#include "gradmon/monitor.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "control/host/child_process.h"
#include "control/link/agent.h"
#include "control/link/launch_id_search.h"
#include "control/log.h"
#include "control/text/output_names.h"
#include "gradmon/forward_entry.h"
#include "runtime/collect/parameter_share.h"
#include "runtime/environment.h"
#include "runtime/launch_id.h"
#include "runtime/session.h"

namespace gradmon {
namespace {

tl::expected<Environment, std::string> settle_environment(const MonitorOptions& options) {
  // The program's options take precedence over the environment.
  auto environment = read_environment(with_rank(from_process, options.rank, options.world_size));
  if (!environment) return environment;
  if (options.endpoint) environment->endpoint = *options.endpoint;
  std::filesystem::path output = options.output_dir.value_or(environment->output_dir);
  if (environment->replica_group.empty() && is_group_name(options.replica_group))
    environment->replica_group = options.replica_group;
  if (!environment->replica_group.empty()) output /= "group-" + environment->replica_group;
  if (options.dynamic) {
    environment->dynamic = *options.dynamic;
  } else if (!environment->mode_error.empty()) {
    log_error(environment->mode_error);
  }
  environment->grad_acc_steps = options.grad_acc_steps;
  environment->short_steps = options.short_steps;
  environment->keep_last_step = options.keep_last_step;
  environment->output_dir = without_dots(std::filesystem::absolute(output)).string();
  if (options.grad_acc_steps < 1) {
    return tl::unexpected("grad_acc_steps " + std::to_string(options.grad_acc_steps) + ": expected >= 1");
  }
  if (auto checked = check_groups(options.groups, environment->rank.value, environment->world_size);
      !checked) {
    return tl::unexpected(checked.error());
  }
  if (environment->world_size > 1 && environment->rank == Rank{0}) {
    const bool given = options.rank && options.world_size;
    log_info("rank and size from " + (given ? "the program" : environment->source));
  }
  return environment;
}

// A program may train more than once: each Monitor of a process gets a separate launch id. All ranks make
// their Monitors in the same order.
LaunchIdSource find_launch(const Environment& environment, const MonitorOptions& options) {
  static std::atomic<int> made{0};
  LaunchEnvironment world;
  world.parent = parent_process;
  world.nonce = options.launch_nonce;
  world.open_store = [](const StoreAddress& address) { return open_torch_store(address); };
  return find_launch_id(environment, ++made, world);
}

// named_modules() is called without the root: it would need a shared_ptr to the root, which may live
// on the stack.
WatchedModel to_watched_model(torch::nn::Module& model) {
  WatchedModel watched;
  for (const auto& item : model.named_parameters())
    watched.parameters.push_back({item.key(), 0, item.value()});
  watched.modules.push_back({"", 0, &model});
  for (const auto& item : model.named_modules("", false)) {
    watched.modules.push_back({item.key(), 0, item.value().get()});
    watched.modules.back().embeds =
        dynamic_cast<const torch::nn::EmbeddingImpl*>(item.value().get()) != nullptr;
  }
  return watched;
}

constexpr std::int64_t kMostHosts = 100'000;

using Notes = tl::expected<std::vector<std::string>, std::string>;

// One host's side of the exchange. Caches the note it has stored and the notes it has read.
class Exchange {
 public:
  Exchange(std::shared_ptr<SharedStore> store, Rank rank) : store_(std::move(store)), rank_(rank) {}

  Notes operator()(const std::string& launch_id, const std::string& own) {
    const std::string place = "gradmon/hubs/" + launch_id;
    if (!own.empty() && own != stored_) {
      auto stored = rank_.value == 0 ? store_->put(place + "/lead", own) : store_numbered(place, own);
      if (!stored) return tl::unexpected(stored.error());
      stored_ = own;
    }
    return rank_.value == 0 ? read_numbered(place) : read_lead(place);
  }

 private:
  tl::expected<void, std::string> store_numbered(const std::string& place, const std::string& own) {
    const auto number = store_->add(place, 1);
    if (!number) return tl::unexpected(number.error());
    return store_->put(place + "/" + std::to_string(*number), own);
  }

  Notes read_lead(const std::string& place) {
    auto entry = store_->get(place + "/lead");
    if (!entry) return tl::unexpected(entry.error());
    if (!*entry) return std::vector<std::string>{};
    return std::vector<std::string>{std::move(**entry)};
  }

  // A host takes its number first and stores its note after that; the note may never come.
  Notes read_numbered(const std::string& place) {
    const auto taken = store_->add(place, 0);
    if (!taken) return tl::unexpected(taken.error());
    if (*taken > static_cast<std::int64_t>(read_.size()))
      read_.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(*taken, 0, kMostHosts)));
    for (std::size_t i = 0; i < read_.size(); ++i) {
      if (!read_[i].empty()) continue;
      auto note = store_->get(place + "/" + std::to_string(i + 1));
      if (!note) return tl::unexpected(note.error());
      if (*note) read_[i] = std::move(**note);
    }
    std::vector<std::string> notes;
    std::copy_if(read_.begin(), read_.end(), std::back_inserter(notes),
                 [](const std::string& note) { return !note.empty(); });
    return notes;
  }

  const std::shared_ptr<SharedStore> store_;
  const Rank rank_;
  std::string stored_;             // this host's stored note; "": none yet
  std::vector<std::string> read_;  // notes by number - 1; "": not found yet
};

// Lets the hubs of several hosts find each other through training's store. Rank 0 stores the lead hub's
// entry under gradmon/hubs/{launch}/lead. Each other host takes the next number from
// gradmon/hubs/{launch} and stores its hub's note under .../{number}. The returned function gives rank 0
// these notes, and the other hosts the entry. One call at a time.
RendezvousExchange rendezvous_in_store(std::shared_ptr<SharedStore> store, Rank rank) {
  return [exchange = std::make_shared<Exchange>(std::move(store), rank)](
             const std::string& launch_id, const std::string& own) { return (*exchange)(launch_id, own); };
}

}  // namespace

Monitor::Monitor(std::filesystem::path config, MonitorOptions options) {
  try {
    auto environment = settle_environment(options);
    if (!environment) {
      log_error("off: " + environment.error());
      return;
    }
    LaunchIdSource launch = find_launch(*environment, options);
    RendezvousExchange notes;
    if (environment->store && environment->world_size > 1)
      notes = rendezvous_in_store(open_torch_store(*environment->store), environment->rank);
    session_ =
        std::make_unique<Session>(std::move(config), Step{options.start_iteration}, std::move(*environment),
                                  std::move(launch), std::move(notes), std::move(options.groups));
  } catch (const std::invalid_argument&) {
    throw;
  } catch (const std::exception& error) {
    log_error(std::string("off: ") + error.what());
  }
}

Monitor::~Monitor() {
  if (!session_) return;
  session_->stop();
  // In a forked child the threads do not exist and their locks may be held: leak the session.
  if (session_->forked()) static_cast<void>(session_.release());
}

void Monitor::watch(torch::nn::Module& model) noexcept {
  try {
    if (session_) session_->watch(to_watched_model(model));
  } catch (const std::exception& error) {
    log_error(std::string("cannot watch the model: ") + error.what());
  }
}

void Monitor::watch(torch::nn::Module& model, torch::optim::Optimizer&) noexcept { watch(model); }

Loop Monitor::step(torch::optim::Optimizer& optimizer) { return step(optimizer, nullptr); }

Loop Monitor::step(torch::optim::Optimizer& optimizer, const Closure& closure) {
  update(optimizer, closure);
  return step();
}

void Monitor::update(torch::optim::Optimizer& optimizer) { update(optimizer, nullptr); }

void Monitor::update(torch::optim::Optimizer& optimizer, const Closure& closure) {
  if (session_) {
    session_->update(optimizer, closure);
  } else {
    optimizer.step(closure);
  }
}

Loop Monitor::step() noexcept { return session_ ? session_->step() : Loop::goes_on; }

void Monitor::samples(std::int64_t count) noexcept {
  if (session_) session_->samples(count);
}

void Monitor::scalar(std::string_view name, double value) noexcept {
  if (session_) session_->scalar(name, value);
}

void Monitor::expert_load(std::string_view layer, const std::vector<std::int64_t>& tokens) noexcept {
  if (session_) session_->expert_load(layer, tokens);
}

void Monitor::attention(std::string_view name, const at::Tensor& q, const at::Tensor& k,
                        Causal causal) noexcept {
  if (forward_entry::open()) forward_entry::attended(nullptr, name, q, k, causal);
}

void Monitor::on(std::optional<std::int64_t> collect_times,
                 std::optional<std::int64_t> step_interval) noexcept {
  Command command;
  command.verb = CommandVerb::on;
  command.collect_times = collect_times;
  command.step_interval = step_interval;
  if (session_) session_->send_command(std::move(command));
}

void Monitor::off() noexcept {
  Command command;
  command.verb = CommandVerb::off;
  if (session_) session_->send_command(std::move(command));
}

void Monitor::set(std::string_view key, std::string_view json) noexcept {
  try {
    Command command;
    command.verb = CommandVerb::set;
    command.edits.emplace_back(key, json);
    command.force = true;  // As in the file, an unknown key or op is a warning.
    if (session_) session_->send_command(std::move(command));
  } catch (const std::exception& error) {
    log_error(std::string("set: ") + error.what());
  }
}

std::vector<Metric> Monitor::metrics() const {
  return session_ ? session_->metrics() : std::vector<Metric>();
}

std::vector<Alert> Monitor::alerts() const { return session_ ? session_->alerts() : std::vector<Alert>(); }

void Monitor::stop() noexcept {
  if (session_) session_->stop();
}

void Monitor::stop(std::chrono::milliseconds at_most) noexcept {
  constexpr std::chrono::milliseconds longest = std::chrono::hours(24 * 365);
  if (session_) session_->stop(std::clamp(at_most, std::chrono::milliseconds{0}, longest));
}

Status Monitor::status() const {
  if (session_ && !session_->forked()) return session_->status();
  Status off;
  off.reason = session_ ? "off in a forked child process" : "setup failed; see the log";
  return off;
}

}  // namespace gradmon
