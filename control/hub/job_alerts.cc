// SPDX-License-Identifier: Apache-2.0
// The alerts of the ranks, and AnomalyRankDivergence over them (AlertRole).
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "control/alerts/alert_report.h"
#include "control/config/json_text.h"
#include "control/host/history_file.h"
#include "control/hub/job_service.h"

namespace gradmon {
namespace {

using Json = nlohmann::ordered_json;

// Variables that programs usually need from the hub's environment, which is training's. The others are not
// passed on: they may hold secrets.
constexpr std::array<const char*, 7> kPassedOn{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ"};
constexpr std::size_t kRoomForTheRest = 200;  // bytes of the JSON around the alerts, without its texts
constexpr std::size_t kMostAlertBytes = kMaxFrameBytes / 2;  // of one answer
constexpr Ticks kLookAtReplicasEvery{200};

fs::path alerts_file(const HubJob& job) {
  return fs::path(job.output_dir) / ".gradmon" / job.epoch / "alerts.jsonl";
}

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// "NAME=VALUE"; a NUL would end the value.
std::string variable(const std::string& name, std::string value) {
  value.erase(std::remove(value.begin(), value.end(), '\0'), value.end());
  return name + "=" + value;
}

}  // namespace

// Takes the alerts that fit; adds the others to left_out.
std::string AlertCommand::input(const std::vector<Alert>& alerts, std::uint64_t left_out) {
  Json json{{"job", job_.lead.name},
            {"launch_id", job_.launch_id},
            {"output_dir", job_.output_dir},
            {"config_path", job_.lead.config_path}};
  Json list = Json::array();
  std::size_t room = LimitedCommand::kMostInput -
                     std::min(text_of(json).size() + kRoomForTheRest, LimitedCommand::kMostInput);
  for (const Alert& alert : alerts) {
    Json one = to_json(alert);
    const std::size_t bytes = text_of(one).size() + 1;
    if (bytes > room) {
      ++left_out;
      continue;
    }
    room -= bytes;
    list.push_back(std::move(one));
  }
  json["alerts"] = std::move(list);
  json["left_out"] = left_out;
  json["missed"] = std::exchange(missed_, 0);
  return text_of(json) + '\n';
}

std::vector<std::string> AlertCommand::environment(const Alert& alert) const {
  std::vector<std::string> all;
  for (const char* name : kPassedOn) {
    if (const char* value = std::getenv(name)) all.push_back(variable(name, value));
  }
  all.push_back(variable("GRADMON_JOB", job_.lead.name));
  all.push_back(variable("GRADMON_LAUNCH_ID", job_.launch_id));
  all.push_back(variable("GRADMON_OUTPUT_DIR", job_.output_dir));
  all.push_back(variable("GRADMON_ALERT_RULE", alert.rule));
  all.push_back(variable("GRADMON_ALERT_RANK", std::to_string(alert.rank.value)));
  all.push_back(variable("GRADMON_ALERT_STEP", std::to_string(alert.step)));
  all.push_back(variable("GRADMON_ALERT_TAG", alert.tag_name));
  all.push_back(variable("GRADMON_ALERT_MESSAGE", alert.message));
  return all;
}

void AlertCommand::on_alerts(const std::vector<std::string>& exec, Ticks cooldown,
                             const std::vector<Alert>& alerts, std::uint64_t left_out, Ticks now) {
  if (exec.empty() || alerts.empty()) return;
  if (running_ || !trigger_.try_fire(now, std::max(cooldown, kLeastPause))) {
    missed_ += alerts.size() + left_out;
    return;
  }
  program_ = exec.front();
  const std::uint64_t untold = missed_ + alerts.size() + left_out;
  auto started =
      LimitedProcess::start({exec, environment(alerts.front()), input(alerts, left_out), kTimeLimit});
  if (started) {
    running_ = std::move(*started);
  } else {
    missed_ = untold;
    failure_ = "on_alert: " + program_ + ": " + started.error();
    failed_to_start_ = true;
  }
}

std::optional<std::string> AlertCommand::poll() {
  if (std::exchange(failed_to_start_, false)) return failure_;
  const auto ended = running_ ? running_->poll() : std::nullopt;
  if (!ended) return std::nullopt;
  running_.reset();
  failure_ = ended->empty() ? "" : "on_alert: " + program_ + " " + *ended;
  return failure_.empty() ? std::nullopt : std::optional(failure_);
}

AlertRole::AlertRole(JobState& state)
    : state_(state),
      alerts_(static_cast<std::uint64_t>(std::max<WallTime>(wall_now(), 1))),
      command_(state.job),
      replicas_(state.job.world_size) {}

void AlertRole::open() {
  const auto& resources = state_.resources;
  resources.run_disk.post([this, mailbox = resources.mailbox, file = alerts_file(state_.job)] {
    auto earlier = std::make_shared<std::vector<AlertHistory::Kept>>(read_alerts(file));
    if (!earlier->empty()) mailbox->post([this, earlier] { alerts_.restore(std::move(*earlier)); });
  });
  // Without an agreement, the ranks have no common step at which to change.
  if (state_.job.lead.dynamic) return;
  if (const auto* wanted = on_alert(); wanted != nullptr && wanted->collect) {
    state_.note_warnings(
        {"static mode: \"collect\" of \"on_alert\" has no effect; DYNAMIC_MONITOR=True makes it possible"});
  }
}

// True if the sender is the rank's present process, regardless of its lease or its step.
bool AlertRole::is_from_rank(const Envelope& envelope) const {
  const Membership& members = state_.coordinator.membership();
  const int rank = envelope.rank.value;
  const bool known = envelope.epoch == state_.job.epoch && rank >= 0 && rank < members.size();
  return known && members.is_from_present_process(envelope) &&
         envelope.incarnation <= members.of(rank).incarnation;
}

bool AlertRole::on_message(const Envelope& envelope) {
  const auto* report = std::get_if<AlertReport>(&envelope.message);
  const auto* digests = std::get_if<ReplicaDigests>(&envelope.message);
  const auto* values = std::get_if<ReplicaValues>(&envelope.message);
  if (report == nullptr && digests == nullptr && values == nullptr) return false;
  const Rank rank = envelope.rank;
  if (!is_from_rank(envelope)) return true;
  if (report != nullptr)
    raise(rank, present_process(rank), unraised_.raised(rank, present_process(rank), *report));
  if (digests != nullptr) perform(replicas_.on_digests(rank, *digests, state_.clock));
  if (values != nullptr) perform(replicas_.on_values(rank, *values));
  return true;
}

void AlertRole::tick() {
  if (const auto failure = command_.poll()) state_.tell(LogLevel::warn, *failure);
  ReplicaComparison::Actions waited;
  if (state_.clock - replicas_looked_at_ >= kLookAtReplicasEvery) {
    replicas_looked_at_ = state_.clock;
    waited = replicas_.tick(state_.clock);
  }
  perform(std::move(waited));  // also raises the remaining alerts of ended ranks
  in_force();                  // describe() needs the newest
  capture_waiting();
}

// The list counts alerts for the rank's present process.
void AlertRole::raise(Rank rank, const std::string& process_id, const AlertReport& report) {
  const auto added = alerts_.add(rank, present_process(rank), report, wall_now());
  if (added.empty()) return;
  state_.resources.channels.publish(added);
  for (const Alert& alert : added) unsaved_.push_back({alert, process_id});
  drop_oldest_unsaved();
  const Config::OnAlert* wanted = on_alert();
  if (wanted == nullptr) return;
  command_.on_alerts(wanted->exec, wanted->cooldown, added, report.left_out, state_.clock);
  if (wanted->collect) capture_after(added.front(), *wanted);
}

// As the history in memory does: after a long time without a disk the file has the newest alerts.
void AlertRole::drop_oldest_unsaved() {
  if (unsaved_.size() <= AlertHistory::kMostKept) return;
  unsaved_.erase(unsaved_.begin(), unsaved_.end() - static_cast<std::ptrdiff_t>(AlertHistory::kMostKept));
}

void AlertRole::save() {
  if (unsaved_.empty()) return;
  const auto alerts = std::make_shared<std::vector<AlertHistory::Kept>>(std::exchange(unsaved_, {}));
  const auto& resources = state_.resources;
  resources.run_disk.post([this, file = alerts_file(state_.job), alerts, mailbox = resources.mailbox] {
    const auto saved = append_alerts(file, *alerts);
    mailbox->post([this, alerts, saved] {
      if (!saved) unsaved_.insert(unsaved_.begin(), alerts->begin(), alerts->end());
      drop_oldest_unsaved();
      state_.note_saved("alerts", saved);
    });
  });
}

// The committed plan's rules raise the alerts. A capture's config has the same `on_alert`.
const std::shared_ptr<const Config>& AlertRole::in_force() {
  const PlanPtr plan = state_.coordinator.committed_plan();
  const std::string& text = plan ? plan->config_text : state_.job.lead.static_text;
  if (text == config_text_) return config_;
  config_ = plan ? plan->config : nullptr;
  if (!config_) {  // of static mode, or of a plan that an earlier hub has logged
    if (const auto source = state_.read_plan(text)) config_ = source->plan->config;
  }
  config_text_ = text;
  return config_;
}

void AlertRole::capture_after(const Alert& alert, const Config::OnAlert& wanted) {
  Coordinator& coordinator = state_.coordinator;
  if (!state_.job.lead.dynamic) return;
  if (coordinator.busy()) {  // A lasting fault begins once: it would start no capture after the change.
    if (!capture_waiting_) capture_waiting_ = alert;
    return;
  }
  if (!coordinator.may_capture()) return;
  if (!capture_trigger_.try_fire(state_.clock, wanted.cooldown)) return;
  auto source =
      capture_config(coordinator.committed_plan()->config_text).and_then([this](const std::string& text) {
        return state_.read_plan(text);
      });
  if (!source) return state_.tell(LogLevel::error, "on_alert: no capture: " + source.error());
  source->plan->collect_times = wanted.times;
  source->plan->step_interval = wanted.collect->step_interval;
  source->plan->by = "an alert (" + alert.rule + " on rank " + std::to_string(alert.rank.value) +
                     " at step " + std::to_string(alert.step) + ")";
  state_.actions += coordinator.capture(source->plan, wall_now());
}

// Starts the capture for an alert that began during a change, if the plan in force still wants one.
void AlertRole::capture_waiting() {
  if (!capture_waiting_ || state_.coordinator.busy()) return;
  const Alert alert = *std::exchange(capture_waiting_, std::nullopt);
  if (const auto* wanted = on_alert(); wanted != nullptr && wanted->collect) capture_after(alert, *wanted);
}

CommandReply AlertRole::listed(const Command& command) const {
  CommandReply reply;
  reply.alerts = alerts_.find({command.after, command.rank, kMostAlertBytes});
  const Membership& members = state_.coordinator.membership();
  for (int rank = 0; rank < members.size(); ++rank) {
    if (!command.rank || *command.rank == rank) reply.raised_alerts += members.of(rank).progress.alerts;
  }
  return reply;
}

// The differing rank raises the alert, so that it passes through that rank's other outputs too.
void AlertRole::perform(ReplicaComparison::Actions actions) {
  for (auto& [rank, request] : actions.requests) send_to(rank, request);
  for (auto& [rank, report] : actions.alerts) {
    unraised_.tell(rank, present_process(rank), report);
    send_to(rank, std::move(report));
  }
  raise_orphans();
}

// Raises the alerts of ranks that ended before they could report them.
void AlertRole::raise_orphans() {
  const auto has_ended = [this](Rank rank, const std::string& process_id) {
    return !state_.coordinator.membership().of(rank.value).takes_part() ||
           present_process(rank) != process_id;
  };
  for (UnraisedAlerts::Told& orphan : unraised_.take_orphans(has_ended))
    raise(orphan.rank, orphan.process_id, {{std::move(orphan.alert)}, 0});
}

void AlertRole::send_to(Rank rank, Message message) {
  const std::uint64_t incarnation = state_.coordinator.membership().of(rank.value).incarnation;
  state_.actions.send.push_back({{{rank.value, incarnation}}, std::move(message)});
}

void AlertRole::describe(Status& status) const {
  // A report may arrive before the Progress that counts its alerts.
  for (RankStatus& rank : status.ranks) {
    rank.listed_alerts = alerts_.listed(rank.rank);
    rank.alerts = std::max(rank.alerts, rank.listed_alerts);
  }
  if (!command_.failure().empty()) status.warnings.push_back(command_.failure());
  const ReplicaComparison::Counts& counts = replicas_.counts();
  if (counts.incomplete > 0)
    status.warnings.push_back("AnomalyRankDivergence: " + std::to_string(counts.incomplete) +
                              " comparisons without the values of some ranks, " +
                              std::to_string(counts.compared) + " comparisons made");
  if (counts.unresolved > 0)
    status.warnings.push_back("AnomalyRankDivergence: values that may differ between ranks did not arrive " +
                              std::to_string(counts.unresolved) + " times");
  ReplicasCompared summary = replicas_.summary();
  const auto compares = [](const AlertRule& rule) { return rule.anomaly == Anomaly::rank_divergence; };
  const auto& rules = config_ ? config_->alert.rules : std::vector<AlertRule>();
  if (summary.ranks > 0 || (status.state == "on" && std::any_of(rules.begin(), rules.end(), compares)))
    status.replicas_compared = std::move(summary);
}

}  // namespace gradmon
