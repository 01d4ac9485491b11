// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/alerts/alerts_command.h"

#include <algorithm>
#include <memory>

#include "tools/gradmonctl/alerts/alerts_view.h"
#include "tools/gradmonctl/ask/connect.h"
#include "tools/gradmonctl/parse/subcommand.h"

namespace gradmon {
namespace {

constexpr std::chrono::milliseconds kPause{1000};

Command question(const AlertsRequest& request, std::uint64_t after) {
  Command command = make_command(CommandVerb::alerts);
  command.rank = request.rank;
  command.after = after;
  return command;
}

}  // namespace

int alerts_command(const AlertsRequest& request, const AskJob& ask, const Console& console) {
  const auto reply = ask(question(request, 0), kAnswerTime);
  if (const int code = report_failure(reply, console); code != kExitDone) return code;
  const auto screen = request.all ? std::nullopt : console.screen;
  console.out << (request.json ? alerts_json(*reply, JsonLayout::indented)
                               : fit_to_screen(screen, alerts_listing(*reply)));
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
    if (more) continue;  // One answer may not hold all of them.
    job.pause(kPause);
    if (job.interrupted()) break;
  }
  return kExitDone;
}

namespace {

class AlertsSubcommand : public SubcommandFor<AlertsRequest> {
 public:
  std::string usage() const override { return "alerts [RUN] [--follow] [--rank R] [--all] [--json]"; }
  std::string summary() const override { return "Show the alerts of all ranks"; }
  Arguments arguments() override {
    Arguments arguments{
        {"--follow", &request().follow,
         "one line for each alert, and go on with new ones until\nthe job ends or "
         "you press Ctrl-C"},
        {"--rank", &request().rank, "only the alerts of this rank", "R"},
        list_all(request().all),
        {"--json", &request().json, "one JSON object (with --follow: one a line for each alert)"}};
    add_job_options(arguments, request().selector);
    return arguments;
  }
  int perform(const Console& console) override {
    if (!request().follow)
      return with_job(request().selector, console,
                      [&](const AskJob& ask) { return alerts_command(request(), ask, console); });
    return with_live_job(request().selector, console,
                         [&](const LiveJob& job) { return follow_alerts(request(), job, console); });
  }
};

}  // namespace

std::unique_ptr<Subcommand> alerts_subcommand() { return std::make_unique<AlertsSubcommand>(); }

}  // namespace gradmon
