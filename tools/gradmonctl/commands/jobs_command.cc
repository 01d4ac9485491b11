// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <memory>

#include "control/host/job_directory.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/json_rule.h"
#include "tools/gradmonctl/cli/listing.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

std::string job_state_text(const Status& job) {
  if (job.state == "on" || job.reason.empty()) return job.state;
  return job.state + ": " + printable_lines(job.reason, "; ");
}

Listing jobs_listing(const std::vector<HubReplies::Answer>& jobs) {
  Listing listing;
  listing.noun = "job";
  listing.before = jobs.empty() ? "no job of this user runs on this host\n" : "";
  if (jobs.empty()) return listing;
  TextTable table({"<name", "<launch", "<started", "<state", "<output directory", "<endpoint"});
  for (const auto& [endpoint, job] : jobs)
    table.add({or_dash(job.name), job.launch_id, utc_text(job.started), job_state_text(job),
               or_dash(job.output_dir), endpoint});
  listing.table = std::move(table);
  return listing;
}

std::string jobs_json(const std::vector<HubReplies::Answer>& jobs) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [endpoint, job] : jobs) {
    list.push_back({{"name", text_or_null(job.name)},
                    {"launch_id", text_or_null(job.launch_id)},
                    {"epoch", text_or_null(job.epoch)},
                    {"started", time_or_null(job.started)},
                    {"answered", true},
                    {"mode", job.mode},
                    {"state", job.state},
                    {"reason", text_or_null(job.reason)},
                    {"output_dir", text_or_null(job.output_dir)},
                    {"config_path", text_or_null(job.config_path)},
                    {"endpoint", endpoint}});
  }
  return json_text({{"schema_version", kJsonSchemaVersion}, {"jobs", std::move(list)}}, JsonLayout::indented);
}

}  // namespace

int jobs_command(const ShowRequest& request, const HubReplies& replies,
                 const std::vector<std::string>& refused, const Console& console) {
  for (const std::string& why : refused) console.err << "gradmonctl: ignored " << printable(why) << '\n';
  for (const std::string& why : replies.unresponsive) console.err << "gradmonctl: " << printable(why) << '\n';
  const auto screen = request.all ? std::nullopt : console.screen;
  console.out << (request.json ? jobs_json(replies.answers)
                               : fit_to_screen(screen, jobs_listing(replies.answers)));
  return kExitDone;
}

Subcommand jobs_subcommand() {
  const auto request = std::make_shared<ShowRequest>();
  return {request,
          "jobs [--all] [--json]",
          "List your jobs on this host",
          {list_all(request->all), {"--json", &request->json, "one JSON object"}},
          [request](const Console& console) {
            const HubReplies replies = query_all_hubs([](const Status&) { return false; });
            return jobs_command(*request, replies, find_job_directories().refused, console);
          }};
}

}  // namespace gradmon
