// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/targets_command.h"

#include "tools/gradmonctl/config_text.h"
#include "tools/gradmonctl/dry_run.h"
#include "tools/gradmonctl/printable.h"
#include "tools/gradmonctl/targets_json.h"
#include "tools/gradmonctl/targets_text.h"

namespace gradmon {
namespace {

tl::expected<Command, int> command_of(const TargetsRequest& request, const Console& console) {
  Command command = question(request.dry_run ? CommandVerb::foresee : CommandVerb::targets);
  command.edits = request.edits;
  if (request.file.empty()) return command;
  auto text = valid_config_text(request.file, {console.err, console.err});
  if (!text) return tl::make_unexpected(text.error());
  command.config_text = std::move(*text);
  return command;
}

int end_of_list(const CommandReply& reply) {
  for (const ProbeResult::Answer& answer : reply.probed) {
    if (!answer.known) return kExitPartial;
  }
  return kExitDone;
}

}  // namespace

int targets_command(const TargetsRequest& request, const AskJob& ask, const Console& console) {
  const auto command = command_of(request, console);
  if (!command) return command.error();
  const auto reply = ask(*command, kAnswerTime);
  if (const int code = refusal(reply, console); code != kExitDone) return code;
  if (!reply->status || reply->probed.empty()) {
    console.err << "gradmonctl: the job's answer holds no targets\n";
    return kExitFailed;
  }
  if (request.dry_run) {
    for (const std::string& warning : reply->status->warnings)
      console.err << "warning: " << printable(warning) << '\n';
  } else if (reply->status->state != "on") {
    console.err << "gradmonctl: nothing is collected"
                << (reply->status->reason.empty() ? "" : ": " + printable_lines(reply->status->reason, "; "))
                << '\n';
  }
  const bool runs = !request.dry_run && reply->status->state == "on";
  const MatchingTargets matching = request.dry_run ? matching_targets(*reply)
                                   : runs          ? matching_now(ask)
                                                   : MatchingTargets();
  const auto plan = request.dry_run ? TargetsOf::plan_tried : TargetsOf::plan_in_force;
  const auto screen = request.all ? std::nullopt : console.screen;
  console.out << (request.json ? targets_json(reply->probed, matching, JsonLayout::indented)
                               : text_on(screen, targets_listing(reply->probed, matching, plan)));
  return request.dry_run ? judge_rehearsal(*reply, console) : end_of_list(*reply);
}

}  // namespace gradmon
