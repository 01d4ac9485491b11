// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/job.h"

#include "control/host/child_process.h"
#include "control/hub/transport/curve_keys.h"
#include "tests/support/catch.h"
#include "tests/support/scoped_variable.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/gradmonctl_process.h"
#include "tests/tools/gradmonctl/sample_status.h"
#include "tools/gradmonctl/commands/commands.h"

namespace gradmon {
namespace {

// The entry of a job on another host. This host cannot check whether the job lives.
JobEntry entry_on_other_host(const std::string& number) {
  JobEntry job;
  job.epoch = number;
  job.launch_id = "launch-" + number;
  job.name = "train.py";
  job.endpoint = "ipc:///only/there";
  job.address = "tcp://elsewhere:" + number;
  job.host = "elsewhere";
  job.started = kSampleTime;
  return job;
}

// The entry as live_jobs() returns it.
JobEntry live_entry(const std::string& number) {
  JobEntry job = entry_on_other_host(number);
  job.endpoint = job.address;
  return job;
}

TEST_CASE("options override GRADMON_ENDPOINT and that overrides MONITOR_OUTPUT_DIR") {
  TemporaryDirectory directory;
  const std::string out = (directory / "").string();
  REQUIRE(write_entry(out, entry_on_other_host("1")));
  const ScopedVariable output("MONITOR_OUTPUT_DIR", out.c_str());
  const ScopedVariable job("GRADMON_JOB", nullptr);
  {
    const ScopedVariable endpoint("GRADMON_ENDPOINT", "ipc:///given");
    CHECK(*find_endpoint({"ipc:///option", ""}) == "ipc:///option");
    CHECK(*find_endpoint({}) == "ipc:///given");
    CHECK(*find_endpoint({"", out}) == "tcp://elsewhere:1");
  }
  const ScopedVariable endpoint("GRADMON_ENDPOINT", nullptr);
  CHECK(*find_endpoint({}) == "tcp://elsewhere:1");
}

TEST_CASE("the output directory is the option or else the variable or else the default") {
  const ScopedVariable unset("MONITOR_OUTPUT_DIR", nullptr);
  CHECK(output_directory({}) == "monitor_output");
  const ScopedVariable output("MONITOR_OUTPUT_DIR", "/out");
  CHECK(output_directory({}) == "/out");
  CHECK(output_directory({"", "/mine"}) == "/mine");
}

TEST_CASE("a name also chooses among the jobs of the output directory") {
  TemporaryDirectory directory;
  const std::string out = (directory / "").string();
  const std::string one = random_hex(4);  // Random: any job of this user on this host can be found.
  const std::string two = random_hex(4);
  REQUIRE(write_entry(out, entry_on_other_host(one)));
  REQUIRE(write_entry(out, entry_on_other_host(two)));
  const ScopedVariable job("GRADMON_JOB", ("launch-" + two).c_str());
  {
    const ScopedVariable endpoint("GRADMON_ENDPOINT", nullptr);
    CHECK(*find_endpoint({"", out, "", "launch-" + one}) == "tcp://elsewhere:" + one);
    CHECK(find_endpoint({"", out}).error().code == 2);
  }
  const ScopedVariable output("MONITOR_OUTPUT_DIR", out.c_str());
  const ScopedVariable endpoint("GRADMON_ENDPOINT", "ipc:///given");
  CHECK(*find_endpoint({}) == "ipc:///given");
  CHECK(*find_endpoint({"", "", "", "launch-" + one}) == "tcp://elsewhere:" + one);
  const ScopedVariable unset("GRADMON_ENDPOINT", nullptr);
  CHECK(*find_endpoint({}) == "tcp://elsewhere:" + two);
  CHECK(says_no_job(find_endpoint({"", "", "", one}).error().message, "named " + one));
}

TEST_CASE("a job with this name has precedence over a job with this launch id") {
  JobEntry one = live_entry("1");
  JobEntry two = live_entry("2");
  one.name = "launch-2";
  REQUIRE(jobs_named("launch-2", {one, two}).size() == 1);
  CHECK(jobs_named("launch-2", {one, two}).front().launch_id == "launch-1");
  CHECK(jobs_named("launch-1", {one, two}).size() == 1);
  CHECK(jobs_named("", {live_entry("1")}).empty());
}

TEST_CASE("an unresponsive hub is reported instead of a missing job") {
  const auto none = only_job({{}, {"the hub at /run/hub.sock does not answer"}}, "named train.py");
  REQUIRE(!none);
  CHECK(none.error().code == 4);
  CHECK(none.error().message ==
        "no job named train.py answered:\nthe hub at /run/hub.sock does not answer\n");
  CHECK(only_job({{live_entry("1")}, {"the hub at /run/hub.sock does not answer"}}, "").has_value());
}

TEST_CASE("a job that has ended is not taken for one of several") {
  LiveJobs both{{live_entry("1"), live_entry("2")}, {}};
  both.ended = {"tcp://elsewhere:1"};
  CHECK(*only_job(both, "") == "tcp://elsewhere:2");
  CHECK(*only_job({{live_entry("1")}, {}, {}, both.ended}, "") == "tcp://elsewhere:1");
}

TEST_CASE("several live jobs are an error that lists them") {
  const auto several = only_job({{live_entry("1"), live_entry("2")}, {}}, "with the output directory /out");
  REQUIRE(!several);
  CHECK(several.error().code == 2);
  CHECK(several.error().message ==
        "2 live jobs with the output directory /out; choose one with --job or --endpoint\n"
        "endpoint           name      host       started                  launch\n"
        "tcp://elsewhere:1  train.py  elsewhere  2026-07-06 12:34:56 UTC  launch-1\n"
        "tcp://elsewhere:2  train.py  elsewhere  2026-07-06 12:34:56 UTC  launch-2\n");
}

// Sets the variables that find_keys() reads.
class ScopedKeyVariables {
 public:
  ScopedKeyVariables(const std::string& keys, const std::string& config_home, const std::string& insecure)
      : keys_("GRADMON_KEYS", keys.c_str()),
        config_home_("XDG_CONFIG_HOME", config_home.c_str()),
        insecure_("GRADMON_INSECURE_LOOPBACK", insecure.c_str()) {}

 private:
  const ScopedVariable keys_;
  const ScopedVariable config_home_;
  const ScopedVariable insecure_;
};

TEST_CASE("keys come from the option or else GRADMON_KEYS or else the default directory") {
  const TemporaryDirectory scratch;
  const std::string tcp = "tcp://127.0.0.1:5555";
  for (const char* name : {"option", "variable"}) REQUIRE(make_key_directory(scratch / name));
  REQUIRE(make_key_directory(scratch / "home/gradmon/keys"));
  const auto job_of = [](const std::filesystem::path& directory) {
    return read_operator_keys(directory)->server_public;
  };
  JobSelector selector;
  {
    const ScopedKeyVariables variables((scratch / "variable").string(), (scratch / "home").string(), "");
    CHECK((**find_keys(selector, tcp)).server_public == job_of(scratch / "variable"));
    selector.keys = (scratch / "option").string();
    CHECK((**find_keys(selector, tcp)).server_public == job_of(scratch / "option"));
    CHECK_FALSE(find_keys(selector, "ipc:///tmp/x")->has_value());
    selector.keys = (scratch / "nothing").string();
    CHECK(find_keys(selector, tcp).error().find("nothing: No such file or directory") != std::string::npos);
  }
  selector.keys = "";
  {
    const ScopedKeyVariables variables("", (scratch / "home").string(), "");
    CHECK((**find_keys(selector, tcp)).server_public == job_of(scratch / "home/gradmon/keys"));
  }
  {
    const ScopedKeyVariables variables("", (scratch / "home").string(), "1");
    CHECK_FALSE(find_keys(selector, tcp)->has_value());
    CHECK(find_keys(selector, "tcp://192.0.2.1:5555")->has_value());
  }
  const ScopedKeyVariables variables("", (scratch / "nowhere").string(), "");
  CHECK_FALSE(find_keys(selector, tcp)->has_value());
}

ChangeRequest set_request(std::size_t bytes) {
  ChangeRequest request;
  request.command.verb = CommandVerb::set;
  request.command.edits = {{"format", '"' + std::string(bytes, 'x') + '"'}};
  return request;
}

TEST_CASE("an edit too large for a message is not sent and ends with 1 and both sizes") {
  FakeJob job;
  CHECK(change_command(set_request(3'000'000), bounded_ask(job.ask()), job.clock(), job.console()) == 1);
  CHECK(job.asked.empty());
  CHECK(job.err.str().find("gradmonctl: too large: the command takes 3000") == 0);
  CHECK(job.err.str().find(" bytes, a job accepts 2162688; nothing was sent\n") != std::string::npos);
}

constexpr std::chrono::milliseconds kTime{5000};

CommandReply no_lead() {
  return reply_with(CommandOutcome::no_lead, "no rank of this job has connected yet");
}

TEST_CASE("a hub without a lead is asked again with the same command until it has one") {
  FakeJob job{no_lead(), no_lead(), reply_with(CommandOutcome::done, "here")};
  const auto begun = job.clock().now();
  const auto reply = patient_ask(job.ask(), job.clock())(make_command(CommandVerb::on), kTime);
  REQUIRE(reply);
  CHECK(reply->message == "here");
  REQUIRE(job.asked.size() == 3);
  CHECK(job.asked[2].request_id == job.asked[0].request_id);
  CHECK(job.clock().now() - begun < std::chrono::seconds(1));
}

TEST_CASE("a hub that stays without a lead gives no answer but its reason, in the time given") {
  FakeJob job{no_lead()};
  job.repeat_last_answer();
  const auto begun = job.clock().now();
  const auto reply = patient_ask(job.ask(), job.clock())(make_command(CommandVerb::on), kTime);
  REQUIRE_FALSE(reply);
  CHECK(reply.error() == "no rank of this job has connected yet");
  CHECK(job.clock().now() - begun <= kTime);
  CHECK(job.clock().now() - begun > kTime / 2);
}

TEST_CASE("every other answer, and none, is handed on at once") {
  FakeJob job{reply_with(CommandOutcome::failed, "superseded")};
  job.stay_silent();
  const AskJob ask = patient_ask(job.ask(), job.clock());
  CHECK(ask(make_command(CommandVerb::on), kTime)->outcome == CommandOutcome::failed);
  CHECK_FALSE(ask(make_command(CommandVerb::on), kTime));
  CHECK(job.asked.size() == 2);
}

CommandReply reply_of(const std::string& release) {
  CommandReply reply;
  reply.release = release;
  return reply;
}

std::string said(FakeJob& job, const std::vector<CommandVerb>& verbs) {
  const AskJob ask = name_other_release(job.ask(), job.console());
  for (const CommandVerb verb : verbs) static_cast<void>(ask(make_command(verb), kAnswerTime));
  return job.err.str();
}

TEST_CASE("a command for a job of another release says both, once, and status and off say nothing") {
  FakeJob job{reply_of("9.9.9")};
  job.repeat_last_answer();
  CHECK(said(job, {CommandVerb::status, CommandVerb::off, CommandVerb::verdict}).empty());
  CHECK(
      said(job, {CommandVerb::on, CommandVerb::verdict, CommandVerb::history}) ==
      "gradmonctl: this is gradmonctl " + own_release() +
          ", and the job runs gradmon 9.9.9: status and off work between releases, everything else as far as "
          "both know it\n");
}

TEST_CASE("a job of this release is not named") {
  FakeJob job{{}};
  CHECK(said(job, {CommandVerb::on}).empty());
}

TEST_CASE("where a job does not answer a command its status has the release") {
  FakeJob job;
  job.stay_silent();
  job.answer(reply_of(""));
  CHECK(said(job, {CommandVerb::alerts}).find("runs an earlier gradmon, which does not tell its version") !=
        std::string::npos);
  CHECK(job.asked.back().verb == CommandVerb::status);
}

}  // namespace

}  // namespace gradmon
