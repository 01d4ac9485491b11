// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "control/alerts/alert_report.h"
#include "control/host/child_process.h"
#include "control/host/history_file.h"
#include "control/hub/transport/bus.h"
#include "control/text/words.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/job.h"
#include "tools/gradmonctl/cli/listing.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

constexpr int kDigits = 6;
constexpr int kDigitsOfAGroup = 3;

// The listing without its table. `shown`: the alerts that the table shows or counts.
Listing empty_listing(const CommandReply& reply, const std::string& noun, std::uint64_t shown) {
  Listing listing;
  listing.noun = noun;
  listing.before = reply.alerts.empty() ? "no alert is listed\n" : "";
  if (reply.raised_alerts > shown)
    listing.after =
        std::to_string(reply.raised_alerts - shown) +
        " more were raised and are not listed (with \"dump\": true, anomaly.json of each rank has them)\n";
  return listing;
}

// The alerts of one step and rule.
struct Group {
  const Alert* first = nullptr;
  std::vector<int> ranks;
  std::uint64_t series = 0;
};

bool is_scalar(const Alert& alert) {
  constexpr std::string_view kTask = "/scalar";
  const std::string_view tag = alert.tag_name;
  return tag.size() > kTask.size() && tag.substr(tag.size() - kTask.size()) == kTask;
}

// "head.output: gradient norm": the name comes first, as it is looked for.
std::string name_first(const Alert& alert) {
  const std::string text = series_text(alert.tag_name, alert.op);
  const std::size_t of = text.find(" of ");
  return of == text.npos ? text : text.substr(of + 4) + ": " + text.substr(0, of);
}

// A training scalar stands for its group, although it may be reported after the step's tensors.
std::vector<Group> group_alerts(const CommandReply& reply) {
  std::map<std::pair<std::int64_t, std::string>, Group> by_step;
  for (const Alert& alert : reply.alerts) {
    Group& group = by_step[{alert.step, alert.rule}];
    if (group.first == nullptr || (is_scalar(alert) && !is_scalar(*group.first))) group.first = &alert;
    group.ranks.push_back(alert.rank.value);
    group.series += 1 + alert.left_out;
  }
  std::vector<Group> groups;
  for (auto& [key, group] : by_step) groups.push_back(std::move(group));
  std::set<std::string> rules;
  std::stable_partition(groups.begin(), groups.end(),
                        [&](const Group& group) { return rules.insert(group.first->rule).second; });
  return groups;
}

// "0-3, 7"
std::string join_numbers(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  const std::string text = rank_ranges(ranks);  // "ranks 0-3, 7"
  return text.substr(text.find(' ') + 1);
}

}  // namespace

Listing alert_groups_listing(const CommandReply& reply) {
  std::uint64_t shown = 0;
  for (const Alert& alert : reply.alerts) shown += 1 + alert.left_out;
  Listing listing = empty_listing(reply, "line", shown);
  if (reply.alerts.empty()) return listing;
  TextTable table({"step", "<rule", "<ranks", "series", "value", "usually", "<first"});
  for (const Group& group : group_alerts(reply)) {
    const Alert& alert = *group.first;
    table.add({std::to_string(alert.step), alert.rule, join_numbers(group.ranks),
               std::to_string(group.series), number_text(alert.value, kDigitsOfAGroup),
               number_text(alert.history_mean, kDigitsOfAGroup), name_first(alert)});
  }
  listing.table = std::move(table);
  return listing;
}

Listing alerts_listing(const CommandReply& reply) {
  Listing listing = empty_listing(reply, "alert", reply.alerts.size());
  if (reply.alerts.empty()) return listing;
  TextTable table({"<received", "rank", "step", "<rule", "value", "history mean", "<op", "<tag"});
  for (const Alert& alert : reply.alerts) {
    table.add({utc_text(alert.at), std::to_string(alert.rank.value), std::to_string(alert.step), alert.rule,
               number_text(alert.value, kDigits), number_text(alert.history_mean, kDigits), alert.op,
               alert.tag_name});
  }
  listing.table = std::move(table);
  return listing;
}

std::string alert_line(const Alert& alert) {
  return utc_text(alert.at) + "  rank " + std::to_string(alert.rank.value) + "  " + printable(alert.message) +
         '\n';
}

std::string alerts_json(const CommandReply& reply, JsonLayout layout) {
  OrderedJson alerts = OrderedJson::array();
  for (const Alert& alert : reply.alerts) alerts.push_back(to_json(alert));
  return json_text({{"schema_version", kJsonSchemaVersion},
                    {"raised", reply.raised_alerts},
                    {"alerts", std::move(alerts)}},
                   layout);
}

std::string alert_json(const Alert& alert) { return json_text(to_json(alert), JsonLayout::one_line); }

namespace {

constexpr std::chrono::milliseconds kPause{1000};

Command question(const AlertsRequest& request, std::uint64_t after) {
  Command command = make_command(CommandVerb::alerts);
  command.rank = request.rank;
  command.after = after;
  return command;
}

// The reply of a hub that has listed these alerts.
CommandReply make_reply(const std::vector<Alert>& alerts, const std::optional<std::int64_t>& rank) {
  CommandReply reply;
  for (const Alert& alert : alerts) {
    if (rank && alert.rank.value != *rank) continue;
    reply.alerts.push_back(alert);
    reply.raised_alerts += 1 + alert.left_out;
  }
  return reply;
}

Result<std::vector<Alert>> alerts_in(const std::string& run) {
  auto kept = alerts_from_files(run);
  if (!kept) return tl::unexpected(std::move(kept.error()));
  std::vector<Alert> alerts;
  for (AlertHistory::Kept& each : *kept) alerts.push_back(std::move(each.alert));
  return alerts;
}

}  // namespace

int alerts_command(const AlertsRequest& request, const AskJob& ask, const AlertFiles& files,
                   const Console& console) {
  auto reply = ask(question(request, 0), kAnswerTime);
  if (reply) {
    if (const int code = report_failure(reply, console); code != kExitDone) return code;
  } else {
    const auto alerts = files();
    console.err << "gradmonctl: " << printable(reply.error()) << "; "
                << (alerts ? "showing the alerts from the job's files" : printable(alerts.error())) << '\n';
    if (!alerts) return kExitNoAnswer;
    reply = make_reply(*alerts, request.rank);
  }
  const auto screen = request.all ? std::nullopt : console.screen;
  console.out << (request.json  ? alerts_json(*reply, JsonLayout::indented)
                  : request.all ? full_text(alerts_listing(*reply))
                                : fit_to_screen(screen, alert_groups_listing(*reply)));
  return kExitDone;
}

int follow_alerts(const AlertsRequest& request, const LiveJob& job, const Console& console) {
  std::uint64_t last = 0;
  for (int gone = 0; console.out;) {
    bool more = false;
    const auto reply = job.ask(question(request, last), kAnswerTime);
    if (reply) {
      if (const int code = report_failure(reply, console); code != kExitDone) return code;
      for (const Alert& alert : reply->alerts) {
        console.out << (request.json ? alert_json(alert) : alert_line(alert));
        more = more || alert.number > last;
        last = std::max(last, alert.number);
      }
      console.out.flush();
      gone = 0;
    } else {
      const std::optional<bool> lives = job.lives();
      if (!lives) return report_failure(reply, console);
      gone = *lives ? 0 : gone + 1;
      if (gone == kLooksBeforeEnd) {
        console.err << "gradmonctl: the job has ended\n";
        return kExitDone;
      }
    }
    if (job.interrupted()) break;
    if (more) continue;  // One answer may not hold all alerts.
    job.pause(kPause);
    if (job.interrupted()) break;
  }
  return kExitDone;
}

namespace {

// The publisher of a lead hub (control/hub/alert_publisher.h): serves the alerts that arrive at the standard
// input to the subscribers of `socket`.
int publish_alerts(const std::string& socket, const Console& console) {
  prctl(PR_SET_NAME, "gradmon-publish");
  set_soft_limit(RLIMIT_CORE, 0);  // libzmq aborts when memory or descriptors run out
#ifndef GRADMON_UNBOUNDED_MEMORY
  set_soft_limit(RLIMIT_DATA, rlim_t{128} << 20U);
  set_soft_limit(RLIMIT_NOFILE, 256);
#endif
  const std::string error = publish_packets(STDIN_FILENO, socket);
  return error.empty() ? kExitDone : report_error(error, console);
}

}  // namespace

Subcommand alerts_subcommand() {
  const auto request = std::make_shared<AlertsRequest>();
  return {
      request, "alerts [RUN] [--follow] [--rank R] [--all] [--json]",
      "Show the alerts of all ranks, also after the job",
      with_job_options(
          {{"RUN", &request->run,
            "the job's output directory, or one rank's directory in it\n(default: as for the other commands, "
            "see --output-dir)"},
           {"--follow", &request->follow,
            "one line for each alert, and go on with new ones until\nthe job ends or "
            "you press Ctrl-C"},
           {"--rank", &request->rank, "only the alerts of this rank", "R"},
           {"--all", &request->all, "a line for each alert, with its tag; whole lines"},
           {"--json", &request->json, "one JSON object (with --follow: one a line for each alert)"},
           {"--publish", &request->publish, ""}},
          request->selector),
      [request](const Console& console) {
        if (!request->publish.empty()) return publish_alerts(request->publish, console);
        JobSelector selector = request->selector;
        if (!request->run.empty()) selector.output_dir = request->run;
        if (request->follow)
          return with_live_job(selector, console,
                               [&](const LiveJob& job) { return follow_alerts(*request, job, console); });
        const AlertFiles files = [run = output_directory(selector)] { return alerts_in(run); };
        return with_job_or_files(
            selector, console, [&] { return files().has_value(); },
            [&](const AskJob& ask) { return alerts_command(*request, ask, files, console); });
      }};
}

}  // namespace gradmon
