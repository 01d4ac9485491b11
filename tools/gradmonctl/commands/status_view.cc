// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/status_view.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "control/agree/message.h"
#include "control/agree/overhead_budget.h"
#include "control/config/config.h"
#include "tools/gradmonctl/cli/listing.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

constexpr const char* kBetween = " · ";
constexpr std::size_t kLongestNames = 60;
constexpr std::int64_t kStalledMs = 30'000;

std::string revision_text(Revision revision) { return "revision " + std::to_string(revision.value); }

std::string pending_text(const Pending& pending) {
  const std::string what = pending.revision == Revision{} ? "a change" : revision_text(pending.revision);
  const std::string since = pending.since == 0 ? "" : " since " + utc_text(pending.since);
  return what + " pending" + since +
         (pending.reason.empty() ? "" : ": " + printable_lines(pending.reason, "; "));
}

// True for a normal reason to be off. Other reasons are also shown beside a pending change.
bool is_ordinary(const std::string& reason) {
  return reason.empty() || reason == "never turned on" || reason == "starting" ||
         reason.rfind("finished", 0) == 0 || reason.rfind("dynamic_on is ", 0) == 0 ||
         reason.rfind("turned off by ", 0) == 0;
}

std::string state_text(const Status& status) {
  const std::string reason = status.reason.empty() ? "" : kBetween + printable_lines(status.reason, "; ");
  if (status.state == "on") {
    const std::int64_t left = std::max<std::int64_t>(status.collect_times - status.collected, 0);
    const std::string times =
        status.collect_times >= kUntilOff
            ? "until it is turned off"
            : std::to_string(left) + " of " + std::to_string(status.collect_times) + " collections left";
    return "ON since step " + std::to_string(status.effective_step) + kBetween + times + reason +
           (status.pending ? kBetween + pending_text(*status.pending) : "");
  }
  if (status.pending)
    return "OFF, " + pending_text(*status.pending) + (is_ordinary(status.reason) ? "" : reason);
  return status.reason.empty() ? "OFF" : "OFF: " + printable_lines(status.reason, "; ");
}

// For the status line: the number of ranks if their ranges are too long.
std::string few_ranks(const std::vector<int>& ranks) {
  std::string names = rank_ranges(ranks);
  return names.size() <= kLongestNames ? names : std::to_string(ranks.size()) + " ranks";
}

std::string agreement_text(const Status& status, const AgreeingRanks& agreement) {
  if (status.mode == "static") return "static mode";
  std::string text = "every rank has ended";
  if (agreement.counted > 0) {
    text = std::to_string(agreement.agreeing) + "/" + std::to_string(agreement.counted) + " ranks agree (" +
           (status.revision == Revision{} ? "no revision yet" : revision_text(status.revision)) + ")";
  } else if (!agreement.dropped.empty()) {
    text = "no rank is left";
  }
  if (!agreement.dropped.empty()) text += ", without " + few_ranks(agreement.dropped) + " (dropped)";
  if (!agreement.ended.empty() && agreement.counted > 0) text += ", " + few_ranks(agreement.ended) + " ended";
  return text;
}

std::string step_ms_text(double step_ms) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.1f", step_ms);
  return text.data();
}

std::string revision_cell(Revision revision) {
  return revision == Revision{} ? "-" : std::to_string(revision.value);
}

// The reason why the rank does not follow the job, or "".
std::string note_on(const RankStatus& rank, const Status& status) {
  if (!is_counted(rank)) return "";
  std::string note = printable_lines(rank.error, "; ");
  const auto add = [&note](const std::string& text) { note += (note.empty() ? "" : "; ") + text; };
  if (rank.state == "absent") {
    if (note.empty()) add("never connected");
    return note;
  }
  if (rank.last_seen_ms >= kHeardWithinMs) add("not heard for " + span_text(rank.last_seen_ms));
  if (rank.waited_ms > 0) add("training waits for a decision, " + span_text(rank.waited_ms) + " so far");
  if (status.mode != "static" && rank.revision != status.revision)
    add("has not applied " + revision_text(status.revision));
  return note;
}

std::vector<std::string> rank_cells(const RankStatus& rank, const Status& status) {
  const std::string number = std::to_string(rank.rank.value);
  const std::string note = note_on(rank, status);
  if (rank.state == "absent" || rank.pid == 0)
    return {number, "-", "-", "-", "-", "-", "-", rank.state, "-", "-", "-", "-", "-", note};
  return {number,
          rank.host,
          std::to_string(rank.pid),
          std::to_string(rank.step),
          revision_cell(rank.revision),
          rank.applied_step < 0 ? "-" : std::to_string(rank.applied_step),
          revision_cell(rank.accepted),
          rank.state,
          step_ms_text(rank.step_ms),
          rank.overhead.collected == 0 ? "-" : percent_text(rank.overhead.share),
          span_text(rank.last_seen_ms) + " ago",
          std::to_string(rank.records),
          std::to_string(rank.dropped),
          note};
}

void list_ranks(const Status& status, Listing& listing) {
  TextTable table({"rank", "<host", "pid", "step", "revision", "applied", "accepted", "<state", "step ms",
                   "overhead", "heard", "records", "dropped", "<note"});
  for (const RankStatus& rank : status.ranks) table.add(rank_cells(rank, status));
  if (status.ranks.empty()) return;
  listing.before += '\n';
  listing.table = std::move(table);
}

std::string targets_trouble(const std::string& rank, const TargetCounts& targets) {
  if (targets.silent == 0) return "";
  return rank + ": " + std::to_string(targets.silent) + " of " + std::to_string(targets.watched) +
         " series silent (gradmonctl targets says which and why)\n";
}

std::string alerts_text(const std::string& rank, const RankStatus& status) {
  if (status.alerts == 0) return "";
  std::string text =
      rank + ": " + std::to_string(status.alerts) + (status.alerts == 1 ? " alert" : " alerts");
  if (status.listed_alerts < status.alerts)
    text += ", " + std::to_string(status.listed_alerts) + " of them listed";
  return text + " (gradmonctl alerts)\n";
}

std::string flight_text(const std::string& rank, const RankStatus& status) {
  if (status.flight_written == 0 && status.flight_lost == 0) return "";
  std::string text = rank + ": flight recorder: " + std::to_string(status.flight_written) + " rows written";
  if (status.flight_lost > 0) text += ", " + std::to_string(status.flight_lost) + " lost";
  return text + '\n';
}

std::string replicas_text(const ReplicasCompared& compared) {
  std::string text = "ranks with the same values: ";
  text += compared.comparisons == 0
              ? "nothing compared so far"
              : std::to_string(compared.comparisons) + " comparisons of " + std::to_string(compared.groups) +
                    (compared.groups == 1 ? " group" : " groups") + " (" + std::to_string(compared.ranks) +
                    " ranks), the newest at step " + std::to_string(compared.last_step);
  if (compared.incomplete > 0) text += ", " + std::to_string(compared.incomplete) + " without some ranks";
  text += '\n';
  for (const std::string& line : compared.not_compared) text += "not compared: " + printable(line) + '\n';
  return text;
}

std::string reason_suffix(const RankStatus& rank) {
  return rank.error.empty() ? "" : ": " + printable_lines(rank.error, "; ");
}

std::string troubles(const Status& status) {
  std::string text;
  for (const RankStatus& rank : status.ranks) {
    const std::string name = "rank " + std::to_string(rank.rank.value);
    if (rank.state == "dropped") text += name + " was dropped" + reason_suffix(rank) + '\n';
    text += targets_trouble(name, rank.targets);
    text += alerts_text(name, rank);
    text += flight_text(name, rank);
    const bool runs = is_counted(rank) && rank.state != "absent";
    if (runs && rank.last_stepped_ms >= kStalledMs) {
      text += name + " has not stepped for " + span_text(rank.last_stepped_ms) + '\n';
    }
  }
  if (status.replicas_compared) text += replicas_text(*status.replicas_compared);
  for (const std::string& warning : status.warnings) text += "warning: " + printable(warning) + '\n';
  if (status.last_error) {
    const LastError& error = *status.last_error;
    text += "last error (" + utc_text(error.at) + ", " + std::to_string(error.count) +
            (error.count == 1 ? " time" : " times") + " in all): " + printable_lines(error.text, "\n  ") +
            '\n';
  }
  return text.empty() ? text : "\n" + text;
}

OrderedJson to_json(const Pending& pending) {
  return {{"revision",
           pending.revision == Revision{} ? OrderedJson(nullptr) : OrderedJson(pending.revision.value)},
          {"reason", text_or_null(pending.reason)},
          {"since", time_or_null(pending.since)}};
}

OrderedJson to_json(const LastError& error) {
  return {{"at", time_or_null(error.at)}, {"text", error.text}, {"count", error.count}};
}

OrderedJson to_json(const ReplicasCompared& compared) {
  return {{"groups", compared.groups},
          {"ranks", compared.ranks},
          {"last_step", step_or_null(compared.last_step)},
          {"comparisons", compared.comparisons},
          {"incomplete", compared.incomplete},
          {"unresolved", compared.unresolved},
          {"not_compared", compared.not_compared}};
}

// `path`: keys with slashes between them.
void put(const std::string& path, OrderedJson value, OrderedJson& json) {
  json[OrderedJson::json_pointer("/" + path)] = std::move(value);
}

void put(const std::string& path, const std::string& text, OrderedJson& json) {
  put(path, text_or_null(text), json);
}

void put(const std::string& path, const Overhead& overhead, OrderedJson& json) {
  put(path, overhead.collected == 0 ? OrderedJson(nullptr) : OrderedJson(overhead.share), json);
  put(path + "_steps", overhead.steps, json);
}

void put(const std::string& path, const TargetCounts& targets, OrderedJson& json) {
  put(path + "/watched", targets.watched, json);
  put(path + "/silent", targets.silent, json);
  put(path + "/without_match", targets.unmatched, json);
}

OrderedJson to_json(const RankStatus& rank) {
  OrderedJson json{{"rank", rank.rank.value},
                   {"host", text_or_null(rank.host)},
                   {"pid", rank.pid == 0 ? OrderedJson(nullptr) : OrderedJson(rank.pid)},
                   {"step", rank.step},
                   {"revision", rank.revision.value},
                   {"applied_step", step_or_null(rank.applied_step)},
                   {"state", rank.state},
                   {"last_seen_ms", rank.last_seen_ms},
                   {"last_stepped_ms", rank.last_stepped_ms},
                   {"accepted", rank.accepted.value}};
  each_report_field(
      [&](const char* path, std::uint32_t, std::uint32_t, auto member) { put(path, rank.*member, json); });
  put("alerts/listed", rank.listed_alerts, json);
  return json;
}

}  // namespace

std::string status_line(const Status& status) {
  const AgreeingRanks agreement = count_agreeing_ranks(status);
  const std::string waited =
      agreement.waited_ms > 0 ? kBetween + ("training has waited " + span_text(agreement.waited_ms)) : "";
  return state_text(status) + waited + kBetween + agreement_text(status, agreement) + kBetween +
         std::to_string(agreement.rows_dropped) + " rows dropped";
}

Listing status_listing(const Status& status) {
  Listing listing;
  listing.noun = "rank";
  listing.before = status_line(status) + '\n';
  list_ranks(status, listing);
  listing.after = troubles(status);
  if (!status.config_path.empty()) listing.after += "\nconfig " + printable(status.config_path) + '\n';
  return listing;
}

std::string status_json(const Status& status, JsonLayout layout) {
  OrderedJson ranks = OrderedJson::array();
  for (const RankStatus& rank : status.ranks) ranks.push_back(to_json(rank));
  const AgreeingRanks agreement = count_agreeing_ranks(status);
  const OrderedJson json{
      {"schema_version", kJsonSchemaVersion},
      {"epoch", status.epoch},
      {"mode", status.mode},
      {"state", status.state},
      {"reason", text_or_null(status.reason)},
      {"revision", status.revision.value},
      {"effective_step", step_or_null(status.effective_step)},
      {"pending", status.pending ? to_json(*status.pending) : OrderedJson(nullptr)},
      {"ranks_agreeing", agreement.agreeing},
      {"ranks_counted", agreement.counted},
      {"training_waited_ms", agreement.waited_ms},
      {"collected", status.collected},
      {"collect_times", status.collect_times},
      {"step_interval", status.step_interval},
      {"torch", text_or_null(status.torch)},
      {"hooks", status.hooks},
      {"launch_id", text_or_null(status.launch_id)},
      {"name", text_or_null(status.name)},
      {"started", time_or_null(status.started)},
      {"output_dir", text_or_null(status.output_dir)},
      {"config_path", text_or_null(status.config_path)},
      {"config_sha256", text_or_null(status.config_sha256)},
      {"alerts_endpoint", text_or_null(status.alerts_endpoint)},
      {"replicas_compared",
       status.replicas_compared ? to_json(*status.replicas_compared) : OrderedJson(nullptr)},
      {"last_error", status.last_error ? to_json(*status.last_error) : OrderedJson(nullptr)},
      {"warnings", status.warnings},
      {"ranks", std::move(ranks)}};
  return json_text(json, layout);
}

}  // namespace gradmon
