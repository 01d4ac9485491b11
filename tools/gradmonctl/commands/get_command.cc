// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <memory>

#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/job.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/commands/config_text.h"

namespace gradmon {
namespace {

int show(const GetRequest& request, const std::string& text, const Console& console) {
  if (request.key.empty()) {
    console.out << text << (text.back() == '\n' ? "" : "\n");
    return kExitDone;
  }
  const auto value = config_value(text, request.key);
  if (!value) {
    console.err << "gradmonctl: " << printable(value.error()) << '\n';
    return kExitUsage;
  }
  console.out << *value << '\n';
  return kExitDone;
}

}  // namespace

int get_command(const GetRequest& request, const AskJob& ask, const Console& console) {
  const auto reply = ask(make_command(CommandVerb::config), kAnswerTime);
  if (const int code = report_failure(reply, console); code != kExitDone) return code;
  if (reply->config_text.empty()) {
    console.err << "gradmonctl: the job's answer has no config\n";
    return kExitFailed;
  }
  if (reply->status && reply->status->pending) {
    const std::string& why = reply->status->pending->reason;
    console.err << "gradmonctl: a change is pending" << (why.empty() ? "" : ": " + printable_lines(why, "; "))
                << '\n';
  }
  return show(request, reply->config_text, console);
}

int get_from_file(const GetRequest& request, const Console& console) {
  const auto text = valid_config_text(request.file, console);
  return text ? show(request, *text, console) : text.error();
}

Subcommand get_subcommand() {
  const auto request = std::make_shared<GetRequest>();
  return {request, "get [KEY] [--config FILE]", "Print the config in force, or one value of it, as JSON",
          with_job_options({{"KEY", &request->key, "a key or a JSON pointer (/alert/dump)"},
                            {"--config", &request->file, "ask this file instead of a job", "FILE"}},
                           request->selector),
          [request](const Console& console) {
            if (!request->file.empty()) return get_from_file(*request, console);
            return with_job(request->selector, console,
                            [&](const AskJob& ask) { return get_command(*request, ask, console); });
          }};
}

int validate_command(const GetRequest& request, const Console& console) {
  const auto text = valid_config_text(request.file, console);
  if (!text) return text.error();
  console.out << printable(request.file) << ": valid\n";
  return kExitDone;
}

Subcommand validate_subcommand() {
  const auto request = std::make_shared<GetRequest>();
  Argument file{"FILE", &request->file, "the config file"};
  file.required = true;
  return {request,
          "validate FILE",
          "Check a config file, and list all its errors",
          {file},
          [request](const Console& console) { return validate_command(*request, console); }};
}

}  // namespace gradmon
