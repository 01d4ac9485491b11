// SPDX-License-Identifier: Apache-2.0
#include "runtime/session.h"

#include <pthread.h>
#include <torch/optim/optimizer.h>
#include <torch/version.h>

#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <utility>

#include "control/config/file_content.h"
#include "control/config/json_text.h"
#include "control/host/child_process.h"
#include "control/link/report_outbox.h"
#include "control/log.h"
#include "control/text/output_names.h"
#include "hooks/rows/optimizer_state.h"
#include "hooks/rows/target_names.h"
#include "runtime/collect/expected_targets.h"
#include "runtime/collect/parameter_share.h"
#include "writers/queue/record.h"
#include "writers/sink_table.h"

namespace gradmon {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kLeaveWithin{500};
constexpr std::chrono::milliseconds kStopAfterErrorWithin{2000};  // training waits meanwhile

AgentOptions agent_options(const Environment& environment, const std::filesystem::path& config, Step start,
                           const LaunchIdSource& launch, RendezvousExchange exchange_notes,
                           const std::optional<Commitment>& static_plan) {
  AgentOptions options;
  static_cast<Introduction&>(options) = environment;
  if (launch.known) options.launch_id = launch.known->id;
  options.ask_for_launch_id = launch.ask;
  options.launch_id_error = launch.reason;
  options.mode = environment.dynamic ? Mode::dynamic : Mode::static_once;
  options.exchange_notes = std::move(exchange_notes);
  options.start_iteration = start;
  options.lead.config_path = config.string();
  options.lead.dynamic = environment.dynamic;
  if (static_plan) options.lead.static_text = static_plan->plan->config_text;
  options.lead.torch = TORCH_VERSION;
  options.lead.hooks.assign(kKindNames.begin(), kKindNames.end());
  options.lead.name = environment.job_name;
  std::ifstream command_line("/proc/self/cmdline");
  if (options.lead.name.empty())
    options.lead.name = program_name({std::istreambuf_iterator<char>(command_line), {}});
  return options;
}

// Static mode: reads the file once. The plan is on, regardless of dynamic_on.
Commitment static_commitment(const std::filesystem::path& config, Step start) {
  auto read = read_file(config);
  if (!read) throw std::invalid_argument(config.string() + ": " + read.error());
  auto source = plan_from_config(read->content, config.string());
  if (!source) throw std::invalid_argument(source.error());
  for (const std::string& warning : source->warnings) log_warn(warning);
  source->plan->on = true;
  source->plan->cause = Cause::start;
  source->plan->by = config.string();
  const Schedule schedule = static_schedule(Step{source->config().start_step}, start,
                                            source->config().step_interval, source->config().collect_times);
  return {Revision{}, source->plan, schedule.first()};
}

std::vector<at::Tensor> parameters_of(torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

// Leaked: a process may fork while static objects are destroyed.
struct Flags {
  std::mutex mutex;
  std::set<std::atomic<bool>*> all;  // guarded by mutex
};
Flags& flags() {
  static Flags* const made = new Flags;
  return *made;
}

void before_fork() { flags().mutex.lock(); }
void in_parent() { flags().mutex.unlock(); }
void in_child() {
  for (std::atomic<bool>* flag : flags().all) flag->store(true);
  flags().mutex.unlock();
}

}  // namespace

std::string UnendedStep::sentence(const std::string& since) const {
  return "rank " + std::to_string(rank_.value) + ": no step has ended " + since +
         "; if training runs, its step is captured: call monitor.step()";
}

const std::string& UnendedStep::look(const Seen& seen, Time now) {
  if (!looked_ || seen.current != current_) {
    looked_ = true;
    current_ = seen.current;
    moved_ = now;
    pending_ = false;
    found_.clear();
  }
  if (seen.switch_pending && !pending_) pending_since_ = now;
  pending_ = seen.switch_pending;
  if (!found_.empty()) return found_;
  if (seen.passes >= most_passes_) {
    found_ = sentence("for " + std::to_string(seen.passes) + " passes");
  } else if (pending_ && now - std::max(moved_, pending_since_) >= kPending) {
    found_ = sentence("for " + std::to_string(kPending.count()) + " s");
  } else if (seen.collecting && seen.evaluations == 0 && now - moved_ >= kCollecting) {
    found_ = sentence("for " + std::to_string(kCollecting.count()) + " min");
  }
  return found_;
}

ForkGuard::ForkGuard(std::atomic<bool>& flag) : flag_(flag) {
  static const int registered = pthread_atfork(before_fork, in_parent, in_child);
  (void)registered;
  const std::lock_guard lock(flags().mutex);
  flags().all.insert(&flag_);
}

ForkGuard::~ForkGuard() {
  const std::lock_guard lock(flags().mutex);
  flags().all.erase(&flag_);
}

Monitor::Session::Session(std::filesystem::path config, Step start, Environment environment,
                          LaunchIdSource launch, RendezvousExchange exchange_notes, ParallelGroups groups)
    : environment_(std::move(environment)),
      groups_(std::move(groups)),
      config_(without_dots(std::filesystem::absolute(config))),
      start_(start),
      directory_(std::make_shared<RunDirectory>(environment_.output_dir, environment_.rank,
                                                launch.known ? launch.known->id : launch.name_on_host,
                                                nullptr)),
      resumed_samples_(std::make_shared<ResumedSamples>(
          start_, [directory = directory_](Step from) { return find_samples(directory->choose(), from); })),
      configs_(config_.string()),
      gate_(start_),
      static_plan_(environment_.dynamic ? std::nullopt : std::optional(static_commitment(config_, start_))),
      current_(start_),
      unended_(environment_.rank, environment_.grad_acc_steps),
      agent_(agent_options(environment_, config_, start_, launch, std::move(exchange_notes), static_plan_),
             gate_, agent_calls()) {
  directory_->set_job_source(agent_.job_lookup());
  if (!static_plan_ || environment_.rank != Rank{0}) return;
  const Step first = static_plan_->effective;
  log_info("static: collecting " +
           (first == start_ ? std::string("now") : "from step " + std::to_string(first.value) + " on") +
           "; dynamic_on is ignored (DYNAMIC_MONITOR=True makes it the switch)");
}

Monitor::Session::~Session() { stop(); }

AgentCalls Monitor::Session::agent_calls() {
  return {[this](const Plan& plan) { return can_carry_out(plan); }, [this] { return report(); },
          [this](const Plan* plan) { return list_targets(plan); },
          [this](const AlertReport& report) { raise(report); }};
}

void Monitor::Session::assign_authors(WatchedModel& model, int chunk) const {
  for (WatchedParameter& parameter : model.parameters) {
    const ParameterShare share = share_of(groups_, environment_.rank.value, parameter.name);
    parameter.vpp_stage = chunk;
    parameter.author = share.author;
    parameter.placement = share.placement;
  }
  for (WatchedModule& module : model.modules) module.vpp_stage = chunk;
}

void Monitor::Session::watch(WatchedModel chunk) {
  if (inactive()) return;
  assign_authors(chunk, chunk_count_);
  const bool first = chunk_count_ == 0;
  chunk_count_ += 1;
  std::vector<TargetName> all_names = *names_;
  for (TargetName& name : target_names(chunk)) all_names.push_back(std::move(name));
  hold_names(std::move(all_names));
  std::copy(chunk.parameters.begin(), chunk.parameters.end(), std::back_inserter(model_.parameters));
  std::copy(chunk.modules.begin(), chunk.modules.end(), std::back_inserter(model_.modules));
  if (collection_) collection_->add_model(chunk);
  if (!first) return;
  if (static_plan_) gate_.settle(static_plan_);
  if (!gate_.try_begin(current_)) pass_gate();
  agent_.start();
}

void Monitor::Session::watch_again(int chunk, WatchedModel model) {
  if (inactive()) return;
  assign_authors(model, chunk);
  WatchedModel all;
  const auto take = [&](const WatchedModel& from, auto wanted) {
    std::copy_if(from.parameters.begin(), from.parameters.end(), std::back_inserter(all.parameters), wanted);
    std::copy_if(from.modules.begin(), from.modules.end(), std::back_inserter(all.modules), wanted);
  };
  take(model_, [&](const auto& part) { return part.vpp_stage < chunk; });
  take(model, [](const auto&) { return true; });
  take(model_, [&](const auto& part) { return part.vpp_stage > chunk; });
  model_ = std::move(all);
  hold_names(target_names(model_));
  if (collection_) collection_->replace_model(model_);
}

void Monitor::Session::hold_names(std::vector<TargetName> names) {
  auto held = std::make_shared<const std::vector<TargetName>>(std::move(names));
  const std::lock_guard lock(mutex_);
  names_.swap(held);
}

std::shared_ptr<const std::vector<TargetName>> Monitor::Session::names() const {
  const std::lock_guard lock(mutex_);
  return names_;
}

void Monitor::Session::boundary() noexcept {
  try {
    if (collection_ && collection_->collecting()) {
      collection_->end_step(samples_, gate_.step_still_valid(boot_now()));
      if (collection_->wants_one_step_only()) log_output_complete();
    } else if (every_step_) {
      collection_->end_step_between(samples_);
    }
    pass_gate();
  } catch (const std::exception& error) {
    if (collection_) collection_->stop(kStopAfterErrorWithin);
    every_step_ = false;
    std::string text = std::string("collection has failed and stays off until restart: ") + error.what();
    log_error(text);
    const std::lock_guard lock(mutex_);
    fatal_error_ = std::move(text);
  }
}

void Monitor::Session::log_output_complete() {
  if (std::exchange(loop_, Loop::may_end) == Loop::may_end) return;
  log_info(
      "the requested output is complete: training may stop (training must go on if a later config drops "
      "print_struct and cc_log_only)");
}

void Monitor::Session::pass_gate() {
  const Opening opening = gate_.begin_or_wait(
      current_, boot_now, [this] { return inactive() || (interrupted_ && interrupted_()); });
  if (opening.swap) swap(*opening.swap);
  if (!collection_ || !fatal_error_.empty()) return;
  if (opening.ended) collection_->end_collection(current_);
  collection_->begin_step(current_, opening.collect ? Collection::Collect::yes : Collection::Collect::no,
                          samples_);
  every_step_ = collection_->needs_every_step();
}

void Monitor::Session::swap(const Commitment& commitment) {
  agent_.plan_swapped();
  loop_ = Loop::goes_on;
  if (!fatal_error_.empty()) return;
  std::shared_ptr<const Config> config;
  if (commitment.plan->on) {
    const auto parsed = configs_.of(*commitment.plan);
    if (parsed) config = *parsed;
    if (!parsed) log_error(parsed.error());  // Not expected: the promise has checked it.
    fix_directory(config.get());
  }
  if (!collection_ && config) {
    std::unique_ptr<Collection> made;
    {
      const std::lock_guard lock(mutex_);
      prepare_collection(config->queue_capacity);
      made = std::move(prepared_);
    }
    made->add_model(model_);
    const std::lock_guard lock(mutex_);
    collection_ = std::move(made);
  }
  if (!collection_) return;
  collection_->swap(commitment, std::move(config));
  collection_->note_plan_change(current_);
}

// `append_output` belongs to the first plan that is on.
void Monitor::Session::fix_directory(const Config* config) {
  const bool first = !std::exchange(directory_settled_, true);
  if (first && config && config->append_output.size() == 2)
    directory_->append_between({config->append_output[0], config->append_output[1]});
  if (environment_.dynamic) directory_->fix_name();
}

void Monitor::Session::prepare_collection(std::int64_t capacity) {
  if (prepared_ && prepared_->queue_capacity() == capacity) return;
  Collection::Settings settings{capacity,   environment_.rank,           environment_.world_size,
                                directory_, environment_.grad_acc_steps, environment_.keep_last_step};
  settings.short_steps = environment_.short_steps;
  settings.start = start_;
  settings.samples = resumed_samples_;
  if (environment_.rank == Rank{0}) settings.ranks = [this] { return agent_.status().ranks; };
  settings.stack = stack_;
  settings.pipeline = groups_.pipeline;
  settings.on_alerts = [outbox = agent_.alert_outbox()](const AlertReport& report) { outbox->put(report); };
  settings.replicas = groups_.replicas.empty() ? groups_.data : groups_.replicas;
  settings.moments_differ = groups_.moments_differ;
  settings.on_replicas = [outbox = agent_.replica_outbox()](ReplicaStep step) {
    outbox->put(std::move(step));
  };
  prepared_ = std::make_unique<Collection>(
      std::move(settings), [this](Revision revision, Step) { agent_.rows_on_disk(revision); });
}

void Monitor::Session::update(torch::optim::Optimizer& optimizer, const Closure& closure) {
  if (!collecting()) {
    optimizer.step(closure);
    return;
  }
  const std::vector<at::Tensor> parameters = parameters_of(optimizer);
  if (parameters.empty()) {  // To the hooks an empty list means "all parameters".
    optimizer.step(closure);
    return;
  }
  LibtorchOptimizerState state(optimizer);
  if (closure) {
    state.set_reads(UpdateReads::weights);
    collection_->before_update(parameters, &state);
    state.set_reads(UpdateReads::everything);
    optimizer.step([&] {
      at::Tensor loss = closure();
      collection_->before_update(parameters, &state);
      return loss;
    });
  } else {
    collection_->before_update(parameters, &state);
    optimizer.step();
  }
  collection_->after_update(parameters, nullptr);
}

void Monitor::Session::scalar(std::string_view name, double value) noexcept {
  if (takes_scalars()) collection_->report_scalar(name, value);
}

void Monitor::Session::expert_load(std::string_view layer, const std::vector<std::int64_t>& tokens) noexcept {
  if (collecting()) collection_->report_experts(layer, tokens);
}

std::vector<Alert> Monitor::Session::alerts() const {
  if (forked_) return {};
  const std::lock_guard lock(mutex_);
  return collection_ ? collection_->recent_alerts() : std::vector<Alert>();
}

std::vector<Metric> Monitor::Session::metrics() const {
  return collection_ && !forked_ ? collection_->last_rows() : std::vector<Metric>();
}

// Gives the same request on every rank the same request id: text of the command, step, and count within the
// step. The lead hub then carries it out once.
void Monitor::Session::send_command(Command command) noexcept {
  if (inactive()) return;
  try {
    if (command.verb == CommandVerb::set && static_plan_) return set_static(command);
    std::string text = "step " + std::to_string(current_.value);
    text += command.verb == CommandVerb::on ? " on" : command.verb == CommandVerb::off ? " off" : " set";
    if (command.collect_times) text += " collect_times=" + std::to_string(*command.collect_times);
    if (command.step_interval) text += " step_interval=" + std::to_string(*command.step_interval);
    for (const auto& [key, value] : command.edits) text += " " + key + "=" + value;
    if (std::exchange(request_step_, current_) != current_) request_counts_.clear();
    if (const int before = request_counts_[text]++; before > 0) text += " #" + std::to_string(before + 1);
    constexpr std::size_t longest = 200;  // the lead hub keeps the id with its answer
    command.request_id = text.size() > longest ? sha256_hex(text) : std::move(text);
    agent_.submit(std::move(command));
  } catch (const std::exception& error) {
    log_error(std::string("a request from the program was not sent: ") + error.what());
  }
}

void Monitor::Session::set_static(const Command& command) {
  const auto edited = set_values(static_plan_->plan->config_text, command.edits);
  if (!edited) return log_warn("set " + edited.error());
  const std::string& text = *edited;
  auto source = plan_from_config(text, config_.string() + ", as the program has set it");
  if (!source) return log_warn(source.error());
  const Commitment& old = *static_plan_;
  if (text == old.plan->config_text) return;
  source->plan->on = true;
  source->plan->cause = old.plan->cause;
  source->plan->by = old.plan->by;
  // The new plan continues the old schedule, in phase with the steps collected so far.
  const Step next = current_ + 1;
  const Schedule steps = schedule_of(*old.plan, old.effective);
  source->plan->continues = steps;
  source->plan->at = steps.first() + steps.collected_before(next) * steps.interval();
  static_plan_ = Commitment{Revision{old.revision.value + 1}, source->plan, next};
  gate_.settle(static_plan_);
}

void Monitor::Session::stop(std::optional<std::chrono::milliseconds> at_most) noexcept {
  if (forked_ || std::exchange(stopped_, true)) return;
  const auto begun = std::chrono::steady_clock::now();
  directory_->shorten_wait();
  // Reserve a part of `at_most` for the agent, so that it can notify the other ranks.
  if (collection_)
    collection_->stop(at_most ? std::optional(*at_most - std::min(*at_most / 5, kLeaveWithin)) : at_most);
  model_ = {};
  const auto spent =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
  agent_.stop(Step{current_.value - 1},
              at_most ? std::clamp(*at_most - spent, 0ms, kLeaveWithin) : kLeaveWithin);
}

// Starts the writer thread before the promise. If no thread can be started, the plan is rejected instead of
// being accepted and not carried out.
tl::expected<void, std::string> Monitor::Session::prepare(std::int64_t capacity) {
  try {
    const std::lock_guard lock(mutex_);
    if (!collection_) prepare_collection(capacity);
    return {};
  } catch (const std::exception& error) {
    return tl::unexpected(std::string("cannot start the writer: ") + error.what());
  }
}

tl::expected<std::int64_t, std::string> Monitor::Session::can_carry_out(const Plan& plan) {
  const auto parsed = configs_.of(plan);
  if (!parsed) return tl::unexpected(parsed.error());
  const Config& config = **parsed;
  if (!includes_rank(config, environment_.rank)) return 0;
  if (auto ready = prepare(config.queue_capacity); !ready) return tl::unexpected(ready.error());
  // Without the lock: matching takes long with many names, and boundaries take the lock.
  const auto all_names = names();
  if (!last_matching_ || last_matching_->config_sha256 != plan.config_sha256 ||
      last_matching_->names != all_names)
    last_matching_ = Matching{plan.config_sha256, all_names, possible_matches(config, *all_names)};
  return last_matching_->matches;
}

TargetList Monitor::Session::list_targets(const Plan* plan) const {
  if (plan == nullptr) {
    const auto [collection, attached] = [this] {
      const std::lock_guard lock(mutex_);
      std::vector<std::string> lines = attached_;
      if (!unended_step_.empty()) lines.push_back(unended_step_);
      // Never replaced once set; outlives the agent.
      return std::pair<const Collection*, std::vector<std::string>>(collection_.get(), std::move(lines));
    }();
    TargetList list = collection ? collection->targets() : TargetList{};
    list.attached = attached;
    return list;
  }
  const auto config = configs_.of(*plan);
  if (!config || !includes_rank(**config, environment_.rank)) return {};
  return dry_run_target_list(**config, *names());
}

// Raises alerts of the lead hub.
void Monitor::Session::raise(const AlertReport& report) {
  Collection* const collection = [this] {
    const std::lock_guard lock(mutex_);
    return collection_.get();  // Never replaced once set; outlives the agent.
  }();
  if (collection) collection->raise(report);
}

Status Monitor::Session::status() const {
  Status status = agent_.status();
  if (gate_.current() <= start_) {
    // First: a hub that is being started, or is away, has no part in it.
    static constexpr char kNoStep[] =
        "no step has ended yet: a step ends by the optimizer's step() or by monitor.step()";
    status.reason = status.reason.empty() ? kNoStep : kNoStep + ("; " + status.reason);
  }
  return status;
}

void Monitor::Session::look_for_unended_step() {
  UnendedStep::Seen seen;
  seen.current = gate_.current();
  seen.switch_pending = gate_.commitment_ahead();
  seen.collecting = gate_.needs_lease();
  if (collection_) {
    seen.passes = collection_->passes().training();
    seen.evaluations = collection_->passes().evaluations();
  }
  const std::string& found = unended_.look(seen, std::chrono::steady_clock::now());
  if (!found.empty() && unended_step_.empty()) log_warn(found);
  unended_step_ = found;
}

CollectingReport Monitor::Session::report() {
  const std::lock_guard lock(mutex_);
  look_for_unended_step();
  CollectingReport report = collection_ ? collection_->report() : CollectingReport{};
  if (!fatal_error_.empty()) report.error = fatal_error_;
  report.skipped = skipped_;
  report.warnings.insert(report.warnings.begin(), program_warnings_.begin(), program_warnings_.end());
  if (!unended_step_.empty()) report.warnings.push_back(unended_step_);
  if (const std::uint64_t dropped = agent_.replica_outbox()->dropped(); dropped > 0)
    report.warnings.push_back("AnomalyRankDivergence: " + std::to_string(dropped) +
                              " digests dropped, because the hub is behind");
  return report;
}

}  // namespace gradmon
