// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/perform.h"

#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "control/client/command_client.h"
#include "control/client/live_jobs.h"
#include "control/config/config_schema.h"
#include "control/config/json_schema.h"
#include "control/host/history_file.h"
#include "control/host/job_directory.h"
#include "tools/gradmonctl/bounded_ask.h"
#include "tools/gradmonctl/change_command.h"
#include "tools/gradmonctl/doctor_command.h"
#include "tools/gradmonctl/dry_run.h"
#include "tools/gradmonctl/find_job.h"
#include "tools/gradmonctl/find_keys.h"
#include "tools/gradmonctl/get_command.h"
#include "tools/gradmonctl/history_access.h"
#include "tools/gradmonctl/history_command.h"
#include "tools/gradmonctl/import_command.h"
#include "tools/gradmonctl/jobs_command.h"
#include "tools/gradmonctl/keygen_command.h"
#include "tools/gradmonctl/live_job.h"
#include "tools/gradmonctl/order_command.h"
#include "tools/gradmonctl/printable.h"
#include "tools/gradmonctl/status_command.h"
#include "tools/gradmonctl/targets_command.h"
#include "tools/gradmonctl/validate_command.h"
#include "tools/gradmonctl/watch_command.h"

namespace gradmon {
namespace {

Pace real_pace() {
  return {[] { return std::chrono::steady_clock::now(); },
          [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }};
}

tl::expected<AskJob, NoJob> connect(const JobPlace& place) {
  const auto endpoint = find_endpoint(place);
  if (!endpoint) return tl::make_unexpected(endpoint.error());
  auto keys = find_keys(place, *endpoint);
  if (!keys) return tl::make_unexpected(NoJob{kExitUsage, printable(keys.error())});
  try {
    const auto client = std::make_shared<CommandClient>(*endpoint, std::move(*keys));
    return bounded_ask([client](const Command& command, std::chrono::milliseconds timeout) {
      return client->ask(command, timeout);
    });
  } catch (const std::runtime_error& error) {
    return tl::make_unexpected(NoJob{kExitUsage, error.what()});
  }
}

// Of this host, so no keys are needed.
AskJob ask_at(const std::string& endpoint) {
  const auto client = std::make_shared<CommandClient>(endpoint);
  return [client](const Command& command, std::chrono::milliseconds timeout) {
    return client->ask(command, timeout);
  };
}

class Performer {
 public:
  explicit Performer(const Console& console) : console_(console) {}

  int operator()(const StatusRequest& request) const {
    const auto ask = connect(request.place);
    return ask ? status_command(request, *ask, real_pace(), console_) : give_up(ask.error());
  }

  int operator()(const WatchRequest& request) const {
    const auto endpoint = find_endpoint(request.place);
    if (!endpoint) return give_up(endpoint.error());
    JobPlace place = request.place;
    place.endpoint = *endpoint;
    const auto ask = connect(place);
    if (!ask) return give_up(ask.error());
    try {
      return watch_command(request, live_job(*endpoint, *ask), console_);
    } catch (const std::runtime_error& error) {
      return give_up({kExitUsage, error.what()});
    }
  }

  int operator()(const JobsRequest& request) const {
    LiveJobs live = jobs_of_this_host();
    const FoundHere found{std::move(live.jobs), find_job_directories().refused, std::move(live.unanswered)};
    return jobs_command(request, found, ask_at, console_);
  }

  int operator()(const OrderRequest& request) const {
    const auto ask = connect(request.place);
    return ask ? order_command(request, *ask, console_) : give_up(ask.error());
  }

  int operator()(const DoctorRequest& request) const {
    const auto ask = connect(request.place);
    const AskJob nobody = [&ask](const Command&, std::chrono::milliseconds) {
      return tl::expected<CommandReply, std::string>(tl::unexpect, ask.error().message);
    };
    return doctor_command(request, ask ? *ask : nobody, console_);
  }

  int operator()(const ChangeRequest& request) const {
    if (!request.file.empty()) return dry_run_of_file(request, console_);
    const auto ask = connect(request.place);
    if (ask && request.dry_run) return dry_run(request, *ask, console_);
    return ask ? change_command(request, *ask, real_pace(), console_) : give_up(ask.error());
  }

  int operator()(const HistoryRequest& request) const {
    const auto ask = connect(request.place);
    const bool no_job = !ask && (ask.error().code == kExitNoAnswer || ask.error().code == kExitNotAllowed);
    if (!ask && !no_job) return give_up(ask.error());
    // Where a name finds no job, the files of another one would mislead.
    if (!ask && !chosen_name(request.place).empty() && request.place.output_dir.empty())
      return give_up(ask.error());
    const std::string denial = no_job ? history_denial(output_directory(request.place)) : "";
    if (!denial.empty()) return give_up({kExitNotAllowed, printable(denial)});
    const AskJob nobody = [&ask](const Command&, std::chrono::milliseconds) {
      return tl::expected<CommandReply, std::string>(tl::unexpect, ask.error().message);
    };
    const HistoryFiles files = [&request] { return history_from_files(output_directory(request.place)); };
    return history_command(request, ask ? *ask : nobody, files, console_);
  }

  int operator()(const TargetsRequest& request) const {
    const auto ask = connect(request.place);
    return ask ? targets_command(request, *ask, console_) : give_up(ask.error());
  }

  int operator()(const GetRequest& request) const {
    if (!request.file.empty()) return get_from_file(request, console_);
    const auto ask = connect(request.place);
    return ask ? get_command(request, *ask, console_) : give_up(ask.error());
  }

  int operator()(const SchemaRequest& request) const {
    console_.out << (request.text ? config_reference() : config_json_schema());
    return kExitDone;
  }

  int operator()(const KeygenRequest& request) const { return keygen_command(request, console_); }

  int operator()(const ValidateRequest& request) const { return validate_command(request, console_); }

  int operator()(const ImportRequest& request) const { return import_command(request, console_); }

  int operator()(const Launch& request) const {
    const auto code = launch(request);
    return code ? *code : give_up({kExitFailed, code.error()});
  }

 private:
  // The message is printable already, with line feeds of its own.
  int give_up(const NoJob& problem) const {
    console_.err << "gradmonctl: " << problem.message << (problem.message.back() == '\n' ? "" : "\n");
    return problem.code;
  }

  const Console& console_;
};

}  // namespace

int perform(const Request& request, const Console& console) {
  return std::visit(Performer(console), request);
}

}  // namespace gradmon
