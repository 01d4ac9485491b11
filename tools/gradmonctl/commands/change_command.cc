// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "control/config/config_parser.h"
#include "control/config/json_text.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/job.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/commands/config_text.h"

namespace gradmon {
namespace {

void show_change(const std::string& file, const std::string& before, const std::string& after,
                 const Console& console) {
  const std::string lines = line_diff(before, after);
  console.out << printable(file) << (lines.empty() ? ": nothing would change\n" : "\n" + lines);
}

std::string answer_text(const DryRunResult::Answer& answer, const MatchCounts& matching) {
  if (!answer.known) return "no answer";
  if (!answer.objection.empty()) return "rejects it: " + printable_lines(answer.objection, "; ");
  const auto found = matching.find(answer.rank.value);
  return found == matching.end() ? "did not report the number of matching targets"
                                 : matching_text(found->second);
}

// One line for all ranks with the same answer, in the order of the lowest rank.
void show_answers(const std::vector<DryRunResult::Answer>& answers, const MatchCounts& matching,
                  const Console& console) {
  std::vector<std::pair<int, std::string>> texts;
  for (const DryRunResult::Answer& answer : answers)
    texts.emplace_back(answer.rank.value, printable(answer_text(answer, matching)));
  for (const std::string& line : grouped_by_text(texts)) console.out << line << '\n';
}

}  // namespace

void report_warnings(const Status& status, const Console& console) {
  for (const std::string& warning : status.warnings) console.err << "warning: " << printable(warning) << '\n';
}

int report_dry_run(const CommandReply& reply, const Console& console) {
  bool rejected = false;
  bool unknown = false;
  std::int64_t matches = 0;
  for (const DryRunResult::Answer& answer : reply.rank_answers) {
    rejected = rejected || !answer.objection.empty();
    unknown = unknown || !answer.known;
    matches += answer.matches;
  }
  const std::string now = reply.status->state == "on" ? "" : " once it is switched on";
  if (rejected || (matches == 0 && !unknown)) {
    console.err << "gradmonctl: the job would reject it" << now
                << (rejected ? "\n" : ": no target matches on any rank\n");
    return kExitFailed;
  }
  if (!now.empty()) console.err << "gradmonctl: nothing is collected: dynamic_on is false\n";
  return unknown ? kExitPartial : kExitDone;
}

int dry_run(const ChangeRequest& request, const AskJob& ask, const Console& console) {
  Command command = make_command(CommandVerb::dry_run);
  command.edits = request.command.edits;
  command.force = request.command.force;
  const auto reply = ask(command, kAnswerTime);
  if (const int code = report_failure(reply, console); code != kExitDone) return code;
  if (!reply->status || reply->config_text.empty()) {
    console.err << "gradmonctl: the job does not support dry runs\n";
    return kExitFailed;
  }
  report_warnings(*reply->status, console);
  show_change(reply->status->config_path, reply->config_before, reply->config_text, console);
  show_answers(reply->rank_answers, matching_with(request.command.edits, ask), console);
  return report_dry_run(*reply, console);
}

int dry_run_of_file(const ChangeRequest& request, const Console& console) {
  const auto before = valid_config_text(request.file, {console.err, console.err});
  if (!before) return before.error();
  const auto after = set_values(*before, request.command.edits);
  if (!after) {
    console.err << "gradmonctl: " << printable(after.error()) << '\n';
    return kExitInvalidConfig;
  }
  show_change(request.file, *before, *after, console);
  if (const int code = report_config_problems(*after, request.file, console); code != kExitDone) return code;
  console.err << "gradmonctl: no job was asked which targets match\n";
  return kExitDone;
}

namespace {

using std::chrono::milliseconds;
constexpr milliseconds kVerdictPause{50};
constexpr milliseconds kReasonPause{1000};        // before the reason of a wait is asked for
constexpr std::int64_t kMaxSeconds = 31'536'000;  // a year

class VerdictWait {
 public:
  VerdictWait(const ChangeRequest& request, const AskJob& ask, const CommandClock& clock,
              const Console& console)
      : timeout_(request.timeout_seconds),
        ask_(ask),
        clock_(clock),
        console_(console),
        ends_(clock.now() + timeout_),
        says_why_(clock.now() + kReasonPause) {}

  int wait(Command command, CommandReply reply) {
    command.verb = CommandVerb::verdict;
    while (!(reply.settled && reply.applied_by_all)) {
      if (left() <= milliseconds(0)) return too_late(reply);
      say_why();
      clock_.sleep(std::min(kVerdictPause, left()));
      const milliseconds patience = std::clamp(left(), milliseconds(1), kAnswerTime);
      auto next = ask_(command, patience);
      if (!next && patience < kAnswerTime) continue;  // The timeout has expired.
      if (const int code = report_failure(next, console_); code != kExitDone) return code;
      reply = std::move(*next);
    }
    if (reply.effective_step >= 0) console_.out << reply.effective_step << '\n';
    return kExitDone;
  }

 private:
  milliseconds left() const { return std::chrono::ceil<milliseconds>(ends_ - clock_.now()); }

  // Prints why the change is pending; again only if more than a number of the reason has changed.
  void say_why() {
    if (clock_.now() < says_why_) return;
    says_why_ = clock_.now() + kReasonPause;
    const auto reply = ask_(make_command(CommandVerb::status), kReasonPause);
    if (!reply || !reply->status || !reply->status->pending) return;
    const std::string why = printable_lines(reply->status->pending->reason, "; ");
    std::string words;
    std::copy_if(why.begin(), why.end(), std::back_inserter(words),
                 [](char c) { return c < '0' || c > '9'; });
    if (words != said_) console_.err << "gradmonctl: pending: " << why << '\n';
    said_ = std::move(words);
  }

  int too_late(const CommandReply& reply) const {
    std::string why = reply.message;
    const auto status = ask_(make_command(CommandVerb::status), milliseconds(1000));
    if (status && status->status && status->status->pending) why = status->status->pending->reason;
    console_.err << "gradmonctl: "
                 << (reply.settled ? "agreed for step " + std::to_string(reply.effective_step) +
                                         ", but not applied by every rank"
                                   : "not agreed")
                 << " within " << timeout_.count() << " s"
                 << (why.empty() ? "" : ": " + printable_lines(why, "; ")) << '\n';
    return kExitPartial;
  }

  const std::chrono::seconds timeout_;
  const AskJob& ask_;
  const CommandClock& clock_;
  const Console& console_;
  const std::chrono::steady_clock::time_point ends_;
  std::chrono::steady_clock::time_point says_why_;  // not before
  std::string said_;                                // the last printed reason, without digits
};

Command to_command(const ChangeRequest& request) {
  Command command = request.command;
  const Command asked = make_command(command.verb);
  command.request_id = asked.request_id;
  command.by = asked.by;
  return command;
}

}  // namespace

int change_command(const ChangeRequest& request, const AskJob& ask, const CommandClock& clock,
                   const Console& console) {
  const Command command = to_command(request);
  VerdictWait verdict(request, ask, clock, console);
  auto reply = ask(command, kAnswerTime);
  if (const int code = report_failure(reply, console); code != kExitDone) return code;
  if (!reply->message.empty())
    console.err << "gradmonctl: " << printable_lines(reply->message, "\n  ") << '\n';
  const int done = reply->collects_nothing ? kExitPartial : kExitDone;
  if (request.wait) {
    const int code = verdict.wait(command, std::move(*reply));
    return code == kExitDone ? done : code;
  }
  if (!reply->settled) console.err << "gradmonctl: requested; --wait waits until every rank has applied it\n";
  return done;
}

namespace {

constexpr milliseconds kOutlookWithin{3000};

// The step time of the slowest rank; 0: unknown.
double slowest_step_ms(const Status& status) {
  double slowest = 0;
  for (const RankStatus& rank : status.ranks) slowest = std::max(slowest, rank.step_ms);
  return slowest;
}

// The rows of all ranks in one collected step; 0: unknown. A target without a row now may get one later.
std::int64_t rows_a_step(const Status& status) {
  const AgreeingRanks agreement = count_agreeing_ranks(status);
  std::int64_t rows = 0;
  for (const RankStatus& rank : status.ranks) rows += is_counted(rank) ? rank.targets.watched : 0;
  return status.unlisted || agreement.agreeing < agreement.counted ? 0 : rows;
}

std::string outlook_text(const Status& status, const Config& config) {
  const double step_ms = slowest_step_ms(status);
  const auto interval = static_cast<double>(status.step_interval);
  std::string text =
      "collects " + (interval == 1 ? "every step" : "one step in " + std::to_string(status.step_interval));
  if (status.collect_times >= kUntilOff) {
    text += " until gradmonctl off";
  } else {
    const double left = static_cast<double>(status.collect_times - status.collected) * interval * step_ms;
    text += ", " + std::to_string(status.collect_times) + " times, for " +
            (step_ms > 0 ? "about " + span_text(static_cast<std::int64_t>(left)) : "a time unknown so far");
  }
  const std::int64_t rows = rows_a_step(status);
  if (rows == 0 || step_ms <= 0) return text + "; how much it writes is unknown so far";
  const double a_minute = 60'000 / step_ms / interval * static_cast<double>(rows);
  std::array<char, 64> rate{};
  std::snprintf(rate.data(), rate.size(), "; about %.0f rows a minute", a_minute);
  text += rate.data();
  const bool csv =
      std::find(config.format.begin(), config.format.end(), Config::Format::csv) != config.format.end();
  // Assumes names of 30 characters, and numbers of 10.
  const double bytes = a_minute * (55.0 + 11.0 * static_cast<double>(config.ops.size()));
  std::snprintf(rate.data(), rate.size(), " (%.2g MiB in CSV)", bytes / 0x1p20);
  return text + (csv ? rate.data() : "") + ": up to " + std::to_string(rows) +
         " in a collected step, on all ranks";
}

}  // namespace

void report_outlook(const AskJob& ask, const CommandClock& clock, const Console& console) {
  const auto ends = clock.now() + kOutlookWithin;
  for (;;) {
    const auto reply = ask(make_command(CommandVerb::config), kAnswerTime);
    if (!reply || reply->outcome != CommandOutcome::done || !reply->status) return;
    const Status& status = *reply->status;
    if (status.state != "on" && !status.pending) return;
    const bool over = clock.now() >= ends;
    if (over && status.state != "on") return;
    if (over ||
        (!status.pending && status.state == "on" && rows_a_step(status) > 0 && slowest_step_ms(status) > 0)) {
      if (const auto config = parse_config(reply->config_text, status.config_path))
        console.err << "gradmonctl: " << outlook_text(status, config->config) << '\n';
      return;
    }
    clock.sleep(kVerdictPause);
  }
}

namespace {

// Adds the arguments of on, off and set. `excluded`: the option that excludes --wait.
Arguments with_wait(Arguments arguments, ChangeRequest& request, const std::string& excluded = "") {
  Argument wait{"--wait", &request.wait,
                "until every rank has applied it; prints the step,\nand meanwhile why it waits"};
  wait.excludes = excluded;
  Argument timeout{"--timeout", &request.timeout_seconds, "stop waiting after SECONDS (60)", "SECONDS"};
  timeout.needs = "--wait";
  timeout.least = 1;
  timeout.most = kMaxSeconds;
  arguments.insert(arguments.end(), {wait, timeout});
  return with_job_options(std::move(arguments), request.selector);
}

std::shared_ptr<ChangeRequest> make_request(CommandVerb verb) {
  auto request = std::make_shared<ChangeRequest>();
  request->command.verb = verb;
  return request;
}

int change(const ChangeRequest& request, const Console& console) {
  return with_job(request.selector, console, [&](const AskJob& ask) {
    const int code = change_command(request, ask, system_clock(), console);
    const bool on = request.command.verb == CommandVerb::on && !request.command.collect_times;
    if (on && code == kExitDone) report_outlook(ask, system_clock(), console);
    return code;
  });
}

int one_shot(const OneShotRequest& request, const Console& console) {
  return with_job(request.selector, console,
                  [&](const AskJob& ask) { return one_shot_command(request, ask, console); });
}

}  // namespace

Subcommand on_subcommand() {
  const auto request = make_request(CommandVerb::on);
  Command& on = request->command;
  Argument interval{"--step-interval", &on.step_interval, "collect every K steps", "K"};
  interval.least = 1;
  return {request, "on [RUN] [--at STEP] [--collect-times N] [--step-interval K] [--wait]",
          "Switch collection on, in every rank at the same step",
          with_wait({{"--at", &on.at, "not before this step", "STEP"},
                     {"--collect-times", &on.collect_times, "stop after so many collected steps", "N"},
                     interval},
                    *request),
          [request](const Console& console) { return change(*request, console); }};
}

Subcommand off_subcommand() {
  const auto request = make_request(CommandVerb::off);
  return {request, "off [RUN] [--wait]", "Switch collection off, in every rank at the same step",
          with_wait({}, *request), [request](const Console& console) { return change(*request, console); }};
}

Subcommand set_subcommand() {
  const auto request = make_request(CommandVerb::set);
  const auto edits = std::make_shared<std::vector<std::string>>();  // KEY=VALUE
  Argument file{"--config", &request->file, "with --dry-run: this file's lines; no job is asked", "FILE"};
  file.needs = "--dry-run";
  return {
      request,
      "set KEY=VALUE... [--force] [--wait | --dry-run]",
      "Set keys of the job's config file",
      with_wait({edit_words(*edits,
                            "KEY is a key or a JSON pointer (/alert/dump);\nVALUE is JSON, anything else is "
                            "taken as a string"),
                 {"--dry-run", &request->dry_run,
                  "change nothing: show the lines that would change,\nand what would match on each rank"},
                 file,
                 {"--force", &request->command.force, "also keys and ops that do not exist"}},
                *request, "--dry-run"),
      [request](const Console& console) {
        if (!request->file.empty()) return dry_run_of_file(*request, console);
        if (!request->dry_run) return change(*request, console);
        return with_job(request->selector, console,
                        [&](const AskJob& ask) { return dry_run(*request, ask, console); });
      },
      [request, edits] {
        const std::string error = parse_edits(*edits, request->command.edits);
        return error.empty() && edits->empty() ? "KEY=VALUE is required" : error;
      }};
}

int one_shot_command(const OneShotRequest& request, const AskJob& ask, const Console& console) {
  Command command = make_command(request.verb);
  command.rank = request.rank;
  const auto reply = ask(command, kAnswerTime);
  if (const int code = report_failure(reply, console); code != kExitDone) return code;
  if (!reply->message.empty())
    console.err << "gradmonctl: " << printable_lines(reply->message, "\n  ") << '\n';
  return kExitDone;
}

Subcommand cancel_subcommand() {
  const auto request = std::make_shared<OneShotRequest>();
  return {request, "cancel [RUN]", "Withdraw the change that is pending",
          with_job_options({}, request->selector),
          [request](const Console& console) { return one_shot(*request, console); }};
}

Subcommand evict_subcommand() {
  const auto request = std::make_shared<OneShotRequest>();
  request->verb = CommandVerb::evict;
  Argument rank{"RANK", &request->rank, "the rank's number"};
  rank.required = true;
  rank.most = std::numeric_limits<std::int32_t>::max();
  return {request, "evict RANK", "Drop a rank: after 15 s no change waits for it any more",
          with_job_options({rank}, request->selector),
          [request](const Console& console) { return one_shot(*request, console); }};
}

}  // namespace gradmon
