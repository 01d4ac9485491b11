// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/jobs_command.h"

#include <memory>
#include <utility>

#include "control/client/live_jobs.h"
#include "control/host/job_directory.h"
#include "tools/gradmonctl/ask/connect.h"
#include "tools/gradmonctl/parse/subcommand.h"
#include "tools/gradmonctl/show/json_rule.h"
#include "tools/gradmonctl/show/printable.h"
#include "tools/gradmonctl/show/text_table.h"
#include "tools/gradmonctl/show/time_text.h"

namespace gradmon {
namespace {

constexpr std::chrono::milliseconds kStateTime{2000};

struct ListedJob {
  JobEntry entry;
  Status status;
  bool answered = false;
};

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

std::string state_text(const ListedJob& job) {
  if (!job.answered) return "no answer";
  if (job.status.state == "on" || job.status.reason.empty()) return job.status.state;
  return job.status.state + ": " + printable_lines(job.status.reason, "; ");
}

Listing jobs_listing(const std::vector<ListedJob>& jobs) {
  Listing listing;
  listing.noun = "job";
  listing.before = jobs.empty() ? "no job of this user runs on this host\n" : "";
  if (jobs.empty()) return listing;
  const auto left = TextTable::Align::left;
  TextTable table({{"name", left},
                   {"launch", left},
                   {"started", left},
                   {"state", left},
                   {"output directory", left},
                   {"endpoint", left}});
  for (const ListedJob& job : jobs)
    table.add({or_dash(job.entry.name), job.entry.launch_id, utc_text(job.entry.started), state_text(job),
               or_dash(job.status.output_dir), job.entry.endpoint});
  table.fill(listing);
  return listing;
}

std::string jobs_json(const std::vector<ListedJob>& jobs) {
  OrderedJson list = OrderedJson::array();
  for (const ListedJob& job : jobs) {
    list.push_back({{"name", text_or_null(job.entry.name)},
                    {"launch_id", text_or_null(job.entry.launch_id)},
                    {"epoch", text_or_null(job.entry.epoch)},
                    {"started", time_or_null(job.entry.started)},
                    {"answered", job.answered},
                    {"mode", job.answered ? OrderedJson(job.status.mode) : OrderedJson(nullptr)},
                    {"state", job.answered ? OrderedJson(job.status.state) : OrderedJson(nullptr)},
                    {"reason", text_or_null(job.status.reason)},
                    {"output_dir", text_or_null(job.status.output_dir)},
                    {"config_path", text_or_null(job.status.config_path)},
                    {"endpoint", job.entry.endpoint}});
  }
  return json_text({{"schema_version", kJsonSchemaVersion}, {"jobs", std::move(list)}}, JsonLayout::indented);
}

}  // namespace

int jobs_command(const JobsRequest& request, const FoundHere& found,
                 const std::function<AskJob(const std::string& endpoint)>& ask_at, const Console& console) {
  std::vector<ListedJob> jobs;
  for (const JobEntry& entry : found.jobs) {
    ListedJob job{entry, {}, false};
    auto reply = ask_at(entry.endpoint)(question(CommandVerb::status), kStateTime);
    job.answered = reply && reply->status;
    if (job.answered) job.status = std::move(*reply->status);
    jobs.push_back(std::move(job));
  }
  for (const std::string& why : found.refused)
    console.err << "gradmonctl: ignored " << printable(why) << '\n';
  for (const std::string& why : found.unanswered) console.err << "gradmonctl: " << printable(why) << '\n';
  console.out << (request.json ? jobs_json(jobs)
                               : text_on(request.all ? std::nullopt : console.screen, jobs_listing(jobs)));
  return kExitDone;
}

namespace {

class JobsSubcommand : public SubcommandFor<JobsRequest> {
 public:
  std::string usage() const override { return "jobs [--all] [--json]"; }
  std::string summary() const override { return "List your jobs on this host"; }
  Arguments arguments() override {
    return {list_all(request().all), {"--json", &request().json, "one JSON object"}};
  }
  int perform(const Console& console) override {
    LiveJobs live = jobs_of_this_host();
    const FoundHere found{std::move(live.jobs), find_job_directories().refused, std::move(live.unanswered)};
    return jobs_command(request(), found, connect_here, console);
  }
};

}  // namespace

std::unique_ptr<Subcommand> jobs_subcommand() { return std::make_unique<JobsSubcommand>(); }

}  // namespace gradmon
