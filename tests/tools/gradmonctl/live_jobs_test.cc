// SPDX-License-Identifier: Apache-2.0
// The program itself, with jobs that answer over their sockets. It finds the other
// jobs of this user on this host, too: names and launch ids here are the test's own.
#include <sys/stat.h>

#include <sstream>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "control/host/process_identity.h"
#include "tests/tools/gradmonctl/fake_hub.h"
#include "tests/tools/gradmonctl/gradmonctl_process.h"
#include "tests/tools/gradmonctl/sample_status.h"
#include "tools/gradmonctl/commands/status_view.h"

namespace gradmon {
namespace {

const std::string kRun = random_hex(4);
const std::string kName = "train-" + kRun;
const std::string kOther = "other-" + kRun;
const std::string kOne = "one-" + kRun;
const std::string kTwo = "two-" + kRun;

Status job(const std::string& name, const std::string& launch_id) {
  Status status = sample_status();
  status.name = name;
  status.launch_id = launch_id;
  status.output_dir = "/out/" + launch_id;
  return status;
}

// The end of one gradmonctl.
struct Ended {
  int code;
  std::string out;
  std::string err;
};

class Host {
 public:
  Host() { chmod(runtime_.path().c_str(), 0700); }

  const std::filesystem::path& runtime_dir() const { return runtime_.path(); }
  Ended ctl(const std::vector<std::string>& words, const std::string& more = "UNUSED=") const {
    GradmonctlProcess process(words, {"XDG_RUNTIME_DIR=" + runtime_.path().string(),
                                      "GRADMON_ENDPOINT=", "MONITOR_OUTPUT_DIR=", "GRADMON_JOB=", more});
    const int code = process.wait();
    return {code, process.out(), process.err()};
  }

 private:
  TemporaryDirectory runtime_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The line of a table that ends with `end`, with single blanks.
std::string line_with(const std::string& table, const std::string& end) {
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

TEST_CASE("jobs lists each job with its name, directory, state and endpoint") {
  const Host host;
  const FakeHub one(host.runtime_dir(), job(kName, kOne));
  const FakeHub two(host.runtime_dir(), job("", kTwo));
  const Ended table = host.ctl({"jobs"});
  CHECK(table.code == 0);
  const std::string since = " 2026-07-06 12:34:56 UTC on /out/";
  const std::string first = kName + ' ' + kOne + since + kOne + ' ' + one.endpoint();
  CHECK(line_with(table.out, one.endpoint()) == first);
  CHECK(line_with(table.out, two.endpoint()) == "- " + kTwo + since + kTwo + ' ' + two.endpoint());
  const Ended json = host.ctl({"jobs", "--json"});
  CHECK(json.code == 0);
  CHECK(has(json.out, "\"launch_id\": \"" + kTwo + '"'));
}

TEST_CASE("a job is chosen by its name, its launch id or its output directory") {
  const Host host;
  const FakeHub one(host.runtime_dir(), job(kName, kOne));
  const FakeHub two(host.runtime_dir(), job(kOther, kTwo));
  const std::string line = status_line(sample_status());
  CHECK(has(host.ctl({"status", "--job", kOther}).out, line));
  CHECK(has(host.ctl({"status", "--job", kOne}).out, line));
  CHECK(has(host.ctl({"status", "--output-dir", "/out/" + kOne}).out, line));
  CHECK(has(host.ctl({"status"}, "GRADMON_JOB=" + kName).out, line));
  CHECK(host.ctl({"status", "--job", kName, "--output-dir", "/out/" + kTwo}).code == 4);
  CHECK(host.ctl({"status", "--output-dir", "/out/" + kTwo}, "GRADMON_JOB=none-" + kRun).code == 0);
}

TEST_CASE("a name that two jobs have lists both, and one that no job has says where to look") {
  const Host host;
  const FakeHub one(host.runtime_dir(), job(kName, kOne));
  const FakeHub two(host.runtime_dir(), job(kName, kTwo));
  const Ended both = host.ctl({"status", "--job", kName});
  CHECK(both.code == 2);
  CHECK(has(both.err, "gradmonctl: 2 live jobs named " + kName + "; choose one with --job or --endpoint\n"));
  CHECK(has(both.err, one.endpoint()));
  const Ended none = host.ctl({"status", "--job", "none-" + kRun});
  CHECK(none.code == 4);
  CHECK(none.err == "gradmonctl: no live job named none-" + kRun +
                        " (gradmonctl jobs lists yours; --job, --output-dir or --endpoint chooses one)\n");
  // Not the files of another job.
  CHECK(host.ctl({"history", "--job", "none-" + kRun}).code == 4);
}

TEST_CASE("each hub is asked once, however few jobs are found") {
  const Host host;
  const FakeHub hub(host.runtime_dir(), job(kName, kOne));
  CHECK(host.ctl({"jobs"}).code == 0);
  CHECK(hub.asked().size() == 1);
  CHECK(host.ctl({"status", "--job", "none-" + kRun}).code == 4);
  CHECK(hub.asked().size() == 2);
}

TEST_CASE("a job is not taken for that of an output directory that cannot be resolved") {
  const Host host;
  Status status = job(kName, kOne);
  status.output_dir = "";
  const FakeHub hub(host.runtime_dir(), status);
  const auto loop = host.runtime_dir() / "loop";
  std::filesystem::create_symlink(loop, loop);
  CHECK(host.ctl({"status", "--output-dir", loop.string()}).code == 4);
}

TEST_CASE("cancel and evict reach the job and its answer is said") {
  const Host host;
  const FakeHub hub(host.runtime_dir(), job(kName, kOne));
  const Ended cancelled = host.ctl({"cancel", "--job", kName});
  CHECK(cancelled.code == 0);
  CHECK(cancelled.err == "gradmonctl: the pending change is withdrawn\n");
  const Ended evicted = host.ctl({"evict", "3", "--job", kName});
  CHECK(evicted.code == 0);
  CHECK(evicted.err == "gradmonctl: rank 3 will be dropped in 15 s\n");
  CHECK(hub.asked().back().verb == CommandVerb::evict);
  CHECK(hub.asked().back().rank == 3);
}

TEST_CASE("an edit of more than a megabyte reaches the job whole") {
  const Host host;
  const FakeHub hub(host.runtime_dir(), job(kName, kOne));
  // One argument of a program has at most 128 KiB.
  std::vector<std::string> words{"set", "--job", kName};
  for (int i = 0; i < 14; ++i) words.push_back("key" + std::to_string(i) + "=" + std::string(100'000, 'x'));
  CHECK(host.ctl(words).code == 0);
  CHECK(hub.asked().back().edits.size() == 14);
}

TEST_CASE("a directory that cannot be trusted is named") {
  const Host host;
  const FakeHub hub(host.runtime_dir(), job(kName, kOne));
  const auto planted = host.runtime_dir() / "gradmon" / "planted";
  REQUIRE(mkdir(planted.c_str(), 0777) == 0);
  REQUIRE(chmod(planted.c_str(), 0777) == 0);
  const Ended listed = host.ctl({"jobs"});
  CHECK(listed.code == 0);
  CHECK(has(listed.err, "gradmonctl: ignored " + planted.string() + ": has mode 0777; expected 0700"));
}

}  // namespace
}  // namespace gradmon
