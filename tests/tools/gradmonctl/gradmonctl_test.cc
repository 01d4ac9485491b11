// SPDX-License-Identifier: Apache-2.0
// gradmonctl as a process, without a job.
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "control/host/child_process.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/tools/gradmonctl/fake_hub.h"
#include "tests/tools/gradmonctl/gradmonctl_process.h"
#include "tests/tools/gradmonctl/sample_status.h"
#include "tools/gradmonctl/commands/status_view.h"

namespace gradmon {
namespace {

// Runs `script` in a shell in which $CTL is gradmonctl and $DIR a directory. Returns its exit code. Only
// gradmonctl can be started here, so the shell is a rank of `gradmonctl run`.
int run_script(const std::string& script) {
  const TemporaryDirectory directory;
  return run_gradmonctl({"run", "-n", "1", "--", "bash", "-c", script},
                        {"CTL=" GRADMONCTL, "DIR=" + directory.path().string()})
      .code;
}

TEST_CASE("help goes to stdout and a usage error to stderr") {
  GradmonctlProcess help({"--help"}, {"TERM=dumb", "LC_ALL=C"});
  CHECK(help.wait() == 0);
  CHECK(golden_difference("help.txt", help.out()) == "");
  CHECK(help.err().empty());
  GradmonctlProcess nothing({});
  CHECK(nothing.wait() == 2);
  CHECK(nothing.out().empty());
  CHECK(nothing.err() == help.out());
}

TEST_CASE("commands without a job end with 4 and say where they looked") {
  TemporaryDirectory directory;
  const std::string place = (directory / "").string();
  for (const char* command : {"status", "watch", "on", "off", "get", "history", "targets"}) {
    GradmonctlProcess ctl({command, "--output-dir", place});
    CHECK(ctl.wait() == 4);
    CHECK(ctl.out().empty());
    CHECK(says_no_job(ctl.err(), "with the output directory " + place));
  }
}

TEST_CASE("an invalid endpoint is a usage error") {
  GradmonctlProcess ctl({"status", "--endpoint", "nonsense"});
  CHECK(ctl.wait() == 2);
}

TEST_CASE("validate accepts a valid file and lists every error of an invalid file") {
  TemporaryDirectory directory;
  const std::string good = (directory / "good.json").string();
  std::ofstream(good) << "{\"dynamic_on\": true, \"step_intervall\": 2}\n";
  GradmonctlProcess valid({"validate", good});
  CHECK(valid.wait() == 0);
  CHECK(valid.out() == good + ": valid\n");
  CHECK(valid.err().find("warning: " + good + ":1:") == 0);

  const std::string bad = (directory / "bad.json").string();
  std::ofstream(bad) << "{\"dynamic_on\": 1,\n \"step_interval\": 0}\n";
  GradmonctlProcess invalid({"validate", bad});
  CHECK(invalid.wait() == 6);
  CHECK(invalid.out().empty());
  CHECK(invalid.err().find(bad + ":1:") == 0);
  CHECK(invalid.err().find("\n" + bad + ":2:") != std::string::npos);
}

TEST_CASE("validate says why a file cannot be read") {
  GradmonctlProcess missing({"validate", "/no/such/file"});
  CHECK(missing.wait() == 1);
  CHECK(missing.err() == "gradmonctl: /no/such/file: No such file or directory\n");
  GradmonctlProcess directory({"validate", "/"});
  CHECK(directory.wait() == 1);
}

TEST_CASE("the schema and the table of all keys match their golden files") {
  GradmonctlProcess schema({"schema"});
  CHECK(schema.wait() == 0);
  CHECK(golden_difference("schema.json", schema.out()) == "");
  GradmonctlProcess table({"schema", "--text"});
  CHECK(table.wait() == 0);
  CHECK(golden_difference("schema.txt", table.out()) == "");
}

TEST_CASE("a closed stdout and a stdout without a reader are no errors") {
  CHECK(run_script("$CTL --help >&-") == 0);
  // Descriptor 3 is closed before gradmonctl starts: then the pipe has no reader.
  CHECK(run_script(R"(mkfifo "$DIR/pipe" && exec 3<>"$DIR/pipe" 4>"$DIR/pipe" 3>&- && $CTL --help >&4)") ==
        0);
}

TEST_CASE("a full disk is an error") { CHECK(run_script("$CTL --help >/dev/full") == 1); }

const std::string kRandomSuffix = random_hex(4);
const std::string kName = "train-" + kRandomSuffix;
const std::string kOtherName = "other-" + kRandomSuffix;
const std::string kFirstLaunch = "one-" + kRandomSuffix;
const std::string kSecondLaunch = "two-" + kRandomSuffix;

Status status_of_job(const std::string& name, const std::string& launch_id) {
  Status status = sample_status();
  status.name = name;
  status.launch_id = launch_id;
  status.output_dir = "/out/" + launch_id;
  return status;
}

// A runtime directory with fake hubs, in which the gradmonctl processes search.
class Host {
 public:
  const std::filesystem::path& runtime_dir() const { return runtime_.path(); }
  ProcessResult ctl(const std::vector<std::string>& words, const std::string& more = "UNUSED=") const {
    return run_gradmonctl(words, {"XDG_RUNTIME_DIR=" + runtime_.path().string(),
                                  "GRADMON_ENDPOINT=", "MONITOR_OUTPUT_DIR=", "GRADMON_JOB=", more});
  }

 private:
  TemporaryDirectory runtime_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The line of `table` that ends with `end`, with single spaces; "" if there is none.
std::string line_ending_with(const std::string& table, const std::string& end) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() < end.size() || line.substr(line.size() - end.size()) != end) continue;
    std::istringstream words(line);
    std::string squeezed;
    for (std::string word; words >> word;) squeezed += (squeezed.empty() ? "" : " ") + word;
    return squeezed;
  }
  return "";
}

TEST_CASE("jobs lists the name and launch id and directory and state and endpoint of each job") {
  const Host host;
  const FakeHub one(host.runtime_dir(), status_of_job(kName, kFirstLaunch));
  const FakeHub two(host.runtime_dir(), status_of_job("", kSecondLaunch));
  const ProcessResult table = host.ctl({"jobs"});
  CHECK(table.code == 0);
  const std::string since = " 2026-07-06 12:34:56 UTC on /out/";
  const std::string first = kName + ' ' + kFirstLaunch + since + kFirstLaunch + ' ' + one.endpoint();
  CHECK(line_ending_with(table.out, one.endpoint()) == first);
  CHECK(line_ending_with(table.out, two.endpoint()) ==
        "- " + kSecondLaunch + since + kSecondLaunch + ' ' + two.endpoint());
  const ProcessResult json = host.ctl({"jobs", "--json"});
  CHECK(json.code == 0);
  CHECK(has(json.out, "\"launch_id\": \"" + kSecondLaunch + '"'));
}

TEST_CASE("a job is chosen by its name or launch id or output directory") {
  const Host host;
  const Status on = status_of_job(kName, kFirstLaunch);
  Status off = status_of_job(kOtherName, kSecondLaunch);
  off.state = "off";
  const FakeHub one(host.runtime_dir(), on);
  const FakeHub two(host.runtime_dir(), off);
  CHECK(has(host.ctl({"status", "--job", kOtherName}).out, status_line(off)));
  CHECK(has(host.ctl({"status", "--job", kFirstLaunch}).out, status_line(on)));
  CHECK(has(host.ctl({"status", "--output-dir", "/out/" + kFirstLaunch}).out, status_line(on)));
  CHECK(has(host.ctl({"status"}, "GRADMON_JOB=" + kName).out, status_line(on)));
  CHECK(host.ctl({"status", "--job", kName, "--output-dir", "/out/" + kSecondLaunch}).code == 4);
  CHECK(has(
      host.ctl({"status", "--output-dir", "/out/" + kSecondLaunch}, "GRADMON_JOB=none-" + kRandomSuffix).out,
      status_line(off)));
}

TEST_CASE("an ambiguous name lists its jobs and an unknown name says how to choose one") {
  const Host host;
  const FakeHub one(host.runtime_dir(), status_of_job(kName, kFirstLaunch));
  const FakeHub two(host.runtime_dir(), status_of_job(kName, kSecondLaunch));
  const ProcessResult both = host.ctl({"status", "--job", kName});
  CHECK(both.code == 2);
  CHECK(has(both.err, "gradmonctl: 2 live jobs named " + kName + "; choose one with --job or --endpoint\n"));
  CHECK(has(both.err, one.endpoint()));
  const ProcessResult none = host.ctl({"status", "--job", "none-" + kRandomSuffix});
  CHECK(none.code == 4);
  const std::string remedy =
      " (gradmonctl jobs lists yours; --job, --output-dir or --endpoint chooses one)\n";
  // While another hub of this user does not answer, the message names that hub instead.
  CHECK((none.err == "gradmonctl: no live job named none-" + kRandomSuffix + remedy ||
         has(none.err, "gradmonctl: no job named none-" + kRandomSuffix + " answered:\n")));
  // The files may be those of another job.
  CHECK(host.ctl({"history", "--job", "none-" + kRandomSuffix}).code == 4);
}

TEST_CASE("each hub is asked once even if no job is found") {
  const Host host;
  const FakeHub hub(host.runtime_dir(), status_of_job(kName, kFirstLaunch));
  CHECK(host.ctl({"jobs"}).code == 0);
  CHECK(hub.asked().size() == 1);
  CHECK(host.ctl({"status", "--job", "none-" + kRandomSuffix}).code == 4);
  CHECK(hub.asked().size() == 2);
}

TEST_CASE("an output directory that cannot be resolved matches no job") {
  const Host host;
  Status status = status_of_job(kName, kFirstLaunch);
  status.output_dir = "";
  const FakeHub hub(host.runtime_dir(), status);
  const auto loop = host.runtime_dir() / "loop";
  std::filesystem::create_symlink(loop, loop);
  CHECK(host.ctl({"status", "--output-dir", loop.string()}).code == 4);
}

TEST_CASE("cancel and evict reach the job and print its answer") {
  const Host host;
  const FakeHub hub(host.runtime_dir(), status_of_job(kName, kFirstLaunch));
  const ProcessResult cancelled = host.ctl({"cancel", "--job", kName});
  CHECK(cancelled.code == 0);
  CHECK(cancelled.err == "gradmonctl: the pending change is withdrawn\n");
  const ProcessResult evicted = host.ctl({"evict", "3", "--job", kName});
  CHECK(evicted.code == 0);
  CHECK(evicted.err == "gradmonctl: rank 3 will be dropped in 15 s\n");
  const std::vector<Command> asked = hub.asked();
  REQUIRE_FALSE(asked.empty());
  CHECK(asked.back().verb == CommandVerb::evict);
  CHECK(asked.back().rank == 3);
}

TEST_CASE("an edit of more than a megabyte reaches the job whole") {
  const Host host;
  const FakeHub hub(host.runtime_dir(), status_of_job(kName, kFirstLaunch));
  // Linux limits one argument to 128 KiB.
  std::vector<std::string> words{"set", "--job", kName};
  std::vector<std::pair<std::string, std::string>> edits;
  for (int i = 0; i < 14; ++i) {
    const std::string key = "key" + std::to_string(i);
    const std::string value(100'000, 'x');
    words.push_back(key + '=' + value);
    edits.emplace_back(key, '"' + value + '"');
  }
  CHECK(host.ctl(words).code == 0);
  const std::vector<Command> asked = hub.asked();
  REQUIRE_FALSE(asked.empty());
  CHECK((asked.back().edits == edits));  // The parentheses keep a failure from printing both.
}

TEST_CASE("jobs ignores and names a directory that others can write to") {
  const Host host;
  const FakeHub hub(host.runtime_dir(), status_of_job(kName, kFirstLaunch));
  const auto planted = host.runtime_dir() / "gradmon" / "planted";
  REQUIRE(mkdir(planted.c_str(), 0777) == 0);
  REQUIRE(chmod(planted.c_str(), 0777) == 0);
  const ProcessResult listed = host.ctl({"jobs"});
  CHECK(listed.code == 0);
  CHECK(has(listed.err, "gradmonctl: ignored " + planted.string() + ": has mode 0777; expected 0700"));
}

}  // namespace

}  // namespace gradmon
