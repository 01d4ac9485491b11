// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/alerts/alerts_command.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "control/host/alert_file.h"
#include "tools/gradmonctl/alerts/alerts_view.h"
#include "tools/gradmonctl/ask/find_job.h"
#include "tools/gradmonctl/ask/history_access.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/cli/subcommand.h"

namespace gradmon {
namespace {

constexpr std::chrono::milliseconds kPause{1000};

Command question(const AlertsRequest& request, std::uint64_t after) {
  Command command = make_command(CommandVerb::alerts);
  command.rank = request.rank;
  command.after = after;
  return command;
}

// The reply of a hub that has listed these alerts.
CommandReply reply_of(const std::vector<RankAlert>& alerts, const std::optional<std::int64_t>& rank) {
  CommandReply reply;
  for (const RankAlert& alert : alerts) {
    if (rank && alert.rank.value != *rank) continue;
    reply.alerts.push_back(alert);
    reply.raised_alerts += 1 + alert.left_out;
  }
  return reply;
}

tl::expected<std::vector<RankAlert>, std::string> alerts_in(const std::string& run) {
  auto kept = alerts_from_files(run);
  if (!kept) return tl::unexpected(std::move(kept.error()));
  std::vector<RankAlert> alerts;
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
    reply = reply_of(*alerts, request.rank);
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
      for (const RankAlert& alert : reply->alerts) {
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

class AlertsSubcommand : public SubcommandFor<AlertsRequest> {
 public:
  std::string usage() const override { return "alerts [RUN] [--follow] [--rank R] [--all] [--json]"; }
  std::string summary() const override { return "Show the alerts of all ranks, also after the job"; }
  Arguments arguments() override {
    Arguments arguments{
        {"RUN", &request().run,
         "the job's output directory, or one rank's directory in it\n(default: as for the other commands, "
         "see --output-dir)"},
        {"--follow", &request().follow,
         "one line for each alert, and go on with new ones until\nthe job ends or "
         "you press Ctrl-C"},
        {"--rank", &request().rank, "only the alerts of this rank", "R"},
        {"--all", &request().all, "a line for each alert, with its tag; whole lines"},
        {"--json", &request().json, "one JSON object (with --follow: one a line for each alert)"}};
    add_job_options(arguments, request().selector);
    return arguments;
  }
  int perform(const Console& console) override {
    JobSelector selector = request().selector;
    if (!request().run.empty()) selector.output_dir = request().run;
    const std::string run = output_directory(selector);
    const AlertFiles files = [&run] { return alerts_in(run); };
    if (!request().follow)
      return with_job_or_files(
          selector, console, [&] { return files().has_value(); },
          [&](const AskJob& ask) { return alerts_command(request(), ask, files, console); });
    return with_live_job(selector, console,
                         [&](const LiveJob& job) { return follow_alerts(request(), job, console); });
  }
};

}  // namespace

std::unique_ptr<Subcommand> alerts_subcommand() { return std::make_unique<AlertsSubcommand>(); }

}  // namespace gradmon
