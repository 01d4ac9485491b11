// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>

#include "control/host/child_process.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/connect.h"
#include "tools/gradmonctl/cli/find_job.h"
#include "tools/gradmonctl/commands/examinations.h"
#include "tools/gradmonctl/commands/status_view.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Level = CheckResult::Level;

CheckResult examine_hooks(const Status& status) {
  if (status.torch.empty())
    return {Level::warn, "torch", "the job did not report its torch version",
            "rebuild the job with this gradmon"};
  std::string kinds;
  for (const std::string& hook : status.hooks) kinds += (kinds.empty() ? "" : ", ") + hook;
  return {Level::ok, "torch", status.torch + "; hooks: " + (kinds.empty() ? "none" : kinds), ""};
}

void examine_job(const Status& status, CheckResults& findings) {
  findings.push_back({Level::ok, "job", status_line(status), ""});
  findings.push_back(examine_hooks(status));
  if (status.last_error)
    findings.push_back({Level::warn, "last error", status.last_error->text, "gradmonctl status tells when"});
  if (status.ranks.empty() || status.ranks.front().host != host_name()) return;
  const RankStatus& rank = status.ranks.front();
  if (const auto use = descriptor_use(rank.pid))
    findings.push_back(examine_descriptors("rank " + std::to_string(rank.rank.value), *use));
}

fs::path parent_directory(const std::string& file) {
  const fs::path directory = fs::path(file).parent_path();
  return directory.empty() ? "." : directory;
}

void examine_keys_for(const JobSelector& selector, CheckResults& findings) {
  const auto endpoint = find_endpoint(selector);
  if (const std::string keys = key_directory(selector, endpoint.value_or("")); !keys.empty())
    findings.push_back(examine_keys(keys));
}

}  // namespace

int doctor_command(const DoctorRequest& request, const AskJob& ask, const Console& console) {
  CheckResults findings;
  std::string file = request.file;
  std::string output = output_directory(request.selector);
  const auto reply = ask(make_command(CommandVerb::status), kAnswerTime);
  if (reply && reply->status) {
    examine_job(*reply->status, findings);
    if (file.empty()) file = reply->status->config_path;
    if (request.selector.output_dir.empty() && !reply->status->output_dir.empty())
      output = reply->status->output_dir;
  } else {
    findings.push_back({Level::warn, "job", reply ? reply->message : reply.error(),
                        "only this host was checked; start a job to check its status too"});
  }
  const auto take = [&findings](CheckResults more) {
    std::move(more.begin(), more.end(), std::back_inserter(findings));
  };
  if (file.empty()) file = "./monitor_config.json";
  const auto named = request.file.empty() ? ConfigNamed::by_job_or_default : ConfigNamed::by_option;
  findings.push_back(examine_config_file(file, named));
  take(examine_config_directory(parent_directory(file)));
  take(examine_output_directory(output));
  take(examine_hub());
  examine_keys_for(request.selector, findings);
  findings.push_back(examine_inotify(inotify_use()));
  if (const auto use = descriptor_use(getpid())) findings.push_back(examine_descriptors("gradmonctl", *use));
  console.out << (request.json ? findings_json(findings) : findings_text(findings));
  return worst(findings) == Level::fail ? kExitFailed : kExitDone;
}

namespace {

class DoctorSubcommand : public SubcommandFor<DoctorRequest> {
 public:
  std::string usage() const override { return "doctor [RUN] [--json]"; }
  std::string summary() const override {
    return "Check this host for what gradmon needs, and show what the job supports";
  }
  Arguments arguments() override {
    Arguments arguments{{"--json", &request().json, "one JSON object"},
                        {"--config", &request().file,
                         "the config file\n(default: the live job's, else ./monitor_config.json)", "FILE"}};
    add_job_options(arguments, request().selector);
    return arguments;
  }
  int perform(const Console& console) override {
    std::string taken;
    const auto ask = connect(request().selector, console, &taken);
    report_taken(taken, console);
    return doctor_command(request(), ask ? *ask : failing_ask(ask.error()), console);
  }
};

}  // namespace

std::unique_ptr<Subcommand> doctor_subcommand() { return std::make_unique<DoctorSubcommand>(); }

}  // namespace gradmon
