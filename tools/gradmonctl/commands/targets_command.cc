// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/targets_command.h"

#include <memory>

#include "tools/gradmonctl/ask/connect.h"
#include "tools/gradmonctl/commands/dry_run.h"
#include "tools/gradmonctl/commands/targets_view.h"
#include "tools/gradmonctl/config/config_text.h"
#include "tools/gradmonctl/config/set_argument.h"
#include "tools/gradmonctl/parse/subcommand.h"
#include "tools/gradmonctl/show/printable.h"

namespace gradmon {
namespace {

tl::expected<Command, int> command_of(const TargetsRequest& request, const Console& console) {
  Command command = make_command(request.dry_run ? CommandVerb::dry_run_targets : CommandVerb::targets);
  command.edits = request.edits;
  if (request.file.empty()) return command;
  auto text = valid_config_text(request.file, {console.err, console.err});
  if (!text) return tl::make_unexpected(text.error());
  command.config_text = std::move(*text);
  return command;
}

int end_of_list(const CommandReply& reply) {
  for (const DryRunResult::Answer& answer : reply.rank_answers) {
    if (!answer.known) return kExitPartial;
  }
  return kExitDone;
}

}  // namespace

int targets_command(const TargetsRequest& request, const AskJob& ask, const Console& console) {
  const auto command = command_of(request, console);
  if (!command) return command.error();
  const auto reply = ask(*command, kAnswerTime);
  if (const int code = report_failure(reply, console); code != kExitDone) return code;
  if (!reply->status || reply->rank_answers.empty()) {
    console.err << "gradmonctl: the job's answer has no targets\n";
    return kExitFailed;
  }
  if (request.dry_run) {
    report_warnings(*reply->status, console);
  } else if (reply->status->state != "on") {
    console.err << "gradmonctl: nothing is collected"
                << (reply->status->reason.empty() ? "" : ": " + printable_lines(reply->status->reason, "; "))
                << '\n';
  }
  const bool runs = !request.dry_run && reply->status->state == "on";
  const MatchCounts matching = request.dry_run ? match_counts(*reply)
                               : runs          ? matching_now(ask)
                                               : MatchCounts();
  const auto plan = request.dry_run ? TargetsOf::plan_tried : TargetsOf::plan_in_force;
  const auto screen = request.all ? std::nullopt : console.screen;
  console.out << (request.json ? targets_json(reply->rank_answers, matching, JsonLayout::indented)
                               : fit_to_screen(screen, targets_listing(reply->rank_answers, matching, plan)));
  return request.dry_run ? report_dry_run(*reply, console) : end_of_list(*reply);
}

namespace {

class TargetsSubcommand : public SubcommandFor<TargetsRequest> {
 public:
  std::string usage() const override {
    return "targets [--all] [--json] [--dry-run [KEY=VALUE...] [--config FILE]]";
  }
  std::string summary() const override {
    return "Show what each rank watches, what matches nothing and what does not fire";
  }
  Arguments arguments() override {
    Argument edits =
        edit_words(edits_, "with --dry-run: the config with these keys set, as\n`gradmonctl set` sets them");
    edits.needs = "--dry-run";
    Argument file{"--config", &request().file, "with --dry-run: this file instead of the job's config",
                  "FILE"};
    file.needs = "--dry-run";
    Arguments arguments{
        list_all(request().all),
        {"--json", &request().json, "one JSON object"},
        {"--dry-run", &request().dry_run, "what would be watched under another config; changes nothing"},
        edits,
        file};
    add_job_options(arguments, request().selector);
    return arguments;
  }
  std::string complete() override { return parse_edits(edits_, request().edits); }
  int perform(const Console& console) override {
    return with_job(request().selector, console,
                    [&](const AskJob& ask) { return targets_command(request(), ask, console); });
  }

 private:
  std::vector<std::string> edits_;  // KEY=VALUE
};

}  // namespace

std::unique_ptr<Subcommand> targets_subcommand() { return std::make_unique<TargetsSubcommand>(); }

}  // namespace gradmon
