// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/get_command.h"

#include "tools/gradmonctl/config_text.h"
#include "tools/gradmonctl/config_value.h"
#include "tools/gradmonctl/printable.h"

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
  const auto reply = ask(question(CommandVerb::config), kAnswerTime);
  if (const int code = refusal(reply, console); code != kExitDone) return code;
  if (reply->config_text.empty()) {
    console.err << "gradmonctl: the job's answer holds no config\n";
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

}  // namespace gradmon
