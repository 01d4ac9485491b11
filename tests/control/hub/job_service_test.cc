// SPDX-License-Identifier: Apache-2.0
// How JobService answers the commands of gradmonctl.
#include "control/hub/job_service.h"

#include <sys/stat.h>

#include "tests/control/hub/served_job.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

constexpr char kOwn[] = "0123456789abcdef";
constexpr char kOld[] = "fedcba9876543210";

Envelope hello_of(const std::string& launch) {
  Hello hello;
  hello.launch_id = launch;
  hello.pid = 77;
  hello.host = "far";
  return {"", Rank{3}, 0, hello};
}

TEST_CASE("a process of an earlier launch is logged once and stays in the status while it sends") {
  ForeignPeers foreign_peers({kOwn, "", 0, "second"});
  const Envelope old{kOld, Rank{1}, 1, Progress{}};
  const std::string line = "rank 1 of an earlier launch (epoch fedcba98) still runs";
  CHECK(foreign_peers.hear(old, Ticks{1000}) == line);
  CHECK_FALSE(foreign_peers.hear(old, Ticks{9000}));
  CHECK(foreign_peers.heard(Ticks{18000}) == std::vector<std::string>{line});
  CHECK(foreign_peers.heard(Ticks{19000}).empty());
}

TEST_CASE("a process of another launch that asks to join is named with its pid") {
  ForeignPeers foreign_peers({kOwn, "", 0, "second"});
  CHECK(foreign_peers.hear(hello_of("first"), Ticks{0}) ==
        "rank 3 of another launch (\"first\", pid 77 on far) asks to join");
}

TEST_CASE("a process of this job, or of no launch yet, is not a foreign peer") {
  ForeignPeers foreign_peers({kOwn, "", 0, "second"});
  CHECK_FALSE(foreign_peers.hear(hello_of("second"), Ticks{0}));
  CHECK_FALSE(foreign_peers.hear({kOwn, Rank{1}, 1, Progress{}}, Ticks{0}));
  CHECK_FALSE(foreign_peers.hear({"", Rank{1}, 0, Progress{}}, Ticks{0}));
  CHECK(foreign_peers.heard(Ticks{0}).empty());
}

TEST_CASE("at most 16 foreign peers are remembered, and one is named however many fell silent before") {
  ForeignPeers foreign_peers({kOwn, "", 0, "second"});
  for (int i = 0; i < 1000; ++i) foreign_peers.hear({std::to_string(i), Rank{1}, 1, Progress{}}, Ticks{0});
  CHECK(foreign_peers.heard(Ticks{0}).size() == 16);
  CHECK_FALSE(foreign_peers.hear(hello_of("first"), Ticks{9'000}));
  CHECK(foreign_peers.hear(hello_of("first"), Ticks{20'000}));
  CHECK(foreign_peers.heard(Ticks{20'000}).size() == 1);
}

// A job that has read its config, which is off.
struct OffJob : ServedJob {
  OffJob() : ServedJob(kOff) {
    REQUIRE(until([&] { return status().reason == "never turned on"; }));
  }
};

TEST_CASE("on and off are written into the file and agreed on and do nothing when repeated") {
  ServedJob job(kOff);
  REQUIRE(job.ask(CommandVerb::on, "one").outcome == CommandOutcome::done);
  CHECK(job.settled("one").effective_step > 0);
  CHECK(read_text(job.path) == kOn);
  CHECK(job.status().state == "on");
  CHECK(job.ask(CommandVerb::on, "one").outcome == CommandOutcome::done);
  CHECK(job.history().size() == 1);
  job.ask(CommandVerb::off, "two");
  job.settled("two");
  CHECK(read_text(job.path) == kOff);
  CHECK(job.ask(CommandVerb::off, "three").message == "already off");
  CHECK(job.settled("three").settled);
  CHECK(job.history().size() == 2);
  CHECK(job.history()[0].by == "tester");
}

TEST_CASE("a request that is repeated after its answer is forgotten changes nothing") {
  ServedJob job(kOff);
  job.ask(CommandVerb::on, "one");
  job.settled("one");
  job.ask(CommandVerb::off, "two");
  job.settled("two");
  for (int i = 0; i < 1'100; ++i)
    job.send_command(ServedJob::command(CommandVerb::cancel, "cancel " + std::to_string(i)));
  CHECK(job.ask(CommandVerb::on, "one").outcome == CommandOutcome::done);
  CHECK(job.settled("one").effective_step > 0);
  CHECK(read_text(job.path) == kOff);
  CHECK(job.status().state == "off");
  CHECK(job.history().size() == 2);
}

TEST_CASE("a new on is a new save and restarts the count") {
  ServedJob job(kOff);
  Command on = ServedJob::command(CommandVerb::on, "one");
  on.collect_times = 3;
  job.ask(on);
  job.settled("one");
  on.request_id = "two";
  job.ask(on);
  const std::int64_t second = job.settled("two").effective_step;
  CHECK(job.history().size() == 2);
  const std::vector<std::int64_t>& collected = job.ranks[0]->collected;
  const auto of_second = [&] {
    return std::count_if(collected.begin(), collected.end(),
                         [&](std::int64_t step) { return step >= second; });
  };
  REQUIRE(job.until([&] { return job.status().reason.rfind("finished", 0) == 0 && of_second() == 3; }));
  job.turns(Ticks{500});
  CHECK(of_second() == 3);
  CHECK(collected.size() > 3);  // the first plan has collected, too
}

TEST_CASE("a set is written into the file and keeps the other keys") {
  ServedJob job("{\n  \"note\": 7,\n  \"dynamic_on\": false\n}\n");
  REQUIRE(job.ask(ServedJob::set("set", {{"collect_times", "4"}, {"/step_interval", "2"}})).outcome ==
          CommandOutcome::done);
  CHECK(read_text(job.path).find("\"collect_times\": 4") != std::string::npos);
  CHECK(read_text(job.path).find("\"step_interval\": 2") != std::string::npos);
  CHECK(read_text(job.path).find("\"note\": 7") != std::string::npos);
  CHECK(job.history().empty());  // off stays off
}

TEST_CASE("a set that would make the config invalid writes nothing") {
  ServedJob job(kOff);
  Command set = ServedJob::set("bad", {{"step_interval", "0"}});
  const CommandReply reply = job.ask(set);
  CHECK(reply.outcome == CommandOutcome::invalid_config);
  CHECK(reply.message.find("step_interval") != std::string::npos);
  CHECK(read_text(job.path) == kOff);
  CHECK(job.settled("bad").outcome == CommandOutcome::invalid_config);
  set.request_id = "again";
  job.ask(set);
  REQUIRE(job.history().size() == 1);  // once
  CHECK(job.history().back().verdict == "refused");
  CHECK(job.history().back().reason == "set step_interval=0: " + reply.message);
}

TEST_CASE("a refused edit of the file is in the history with its position and its reason") {
  ServedJob job(kOff);
  const std::string path = job.path.string();
  const auto refused = [&](const std::function<void()>& edit) {
    const std::size_t before = job.history().size();
    edit();
    REQUIRE(job.until([&] { return job.history().size() > before; }));
    const HistoryEntry entry = job.history().back();
    CHECK(entry.verdict == "refused");
    CHECK(entry.cause == "file");
    CHECK(entry.by == path);
    CHECK(entry.final);
    CHECK(entry.proposed_at > 0);
    return entry.reason;
  };
  const std::string wrong = "{\"dynamic_on\": true,\n \"step_interval\": 0}";
  const std::string key = refused([&] { write_text(path, wrong); });
  CHECK(key.rfind(path + ":2:", 0) == 0);
  CHECK(key.find("step_interval") != std::string::npos);
  CHECK(refused([&] { write_text(path, R"({"dynamic_on": tru)"); }).rfind(path + ":1:", 0) == 0);
  const std::string unreadable = refused([&] {
    REQUIRE(fs::remove(path));
    REQUIRE(fs::create_directory(path));
  });
  CHECK(unreadable == path + ": it is not a regular file");
  REQUIRE(fs::remove(path));
  write_text(path, kOff);
  REQUIRE(job.until([&] { return !job.status().last_error; }));
  CHECK(job.history().size() == 3);
}

TEST_CASE("a file that is refused again for the same reason is in the history once") {
  ServedJob job("{]");
  REQUIRE(job.history().size() == 1);
  CHECK(job.history().back().cause == "start");
  const std::string first = job.status().last_error->text;
  const auto at = job.status().last_error->count;
  write_text(job.path, "{] ");
  REQUIRE(job.until([&] { return job.status().last_error->count > at; }));
  CHECK(job.status().last_error->text == first);
  CHECK(job.history().size() == 1);
}

TEST_CASE("a file with many errors is refused with the first of them") {
  std::string ops = "1";
  for (int i = 0; i < 50; ++i) ops += ",\n1";
  ServedJob job("{\"ops\": [" + ops + "]}");
  REQUIRE(job.history().size() == 1);
  const std::string reason = job.history().back().reason;
  CHECK(reason.rfind(job.path.string() + ":1:10: /ops/0", 0) == 0);
  CHECK(reason.size() < 1'100);
}

TEST_CASE("cancel withdraws a change that waits for a rank and says if no change is pending") {
  ServedJob job(kOff, 2, 1);
  CHECK(job.ask(CommandVerb::cancel).message == "no change is pending");
  job.ask(CommandVerb::on, "one");
  REQUIRE(job.until([&] { return job.status().pending.has_value(); }));
  CHECK(job.status().pending->reason.find("waiting for rank 1 of 2") == 0);
  CHECK(job.ask(CommandVerb::cancel, "cancel").message == "the pending change is withdrawn");
  CHECK(job.ask(CommandVerb::cancel, "cancel").message == "the pending change is withdrawn");
  const CommandReply verdict = job.settled("one");
  CHECK(verdict.outcome == CommandOutcome::failed);
  CHECK_FALSE(job.status().pending);
}

TEST_CASE("evict drops a member and refuses an unknown rank") {
  ServedJob job(kOff, 2, 2);
  REQUIRE(job.until([&] { return job.status().ranks.size() == 2 && job.status().ranks[1].state == "idle"; }));
  Command evict = ServedJob::command(CommandVerb::evict, "one");
  for (const std::int64_t nobody : {-1L, 2L, 1L << 40}) {
    evict.rank = nobody;
    evict.request_id = "to " + std::to_string(nobody);
    CHECK(job.ask(evict).outcome == CommandOutcome::failed);
  }
  evict.rank = 1;
  evict.request_id = "one";
  CHECK(job.ask(evict).message == "rank 1 will be dropped in 15 s");
  job.turns(Ticks{16'000});
  CHECK(job.status().ranks[1].state == "dropped");
  job.ask(CommandVerb::on, "on");
  CHECK(job.settled("on").outcome == CommandOutcome::done);
}

TEST_CASE("off is decided without the file if the file is broken and the file stays as it is") {
  ServedJob job(kOn);
  REQUIRE(job.until_state("on"));
  const std::string broken = R"({"dynamic_on": tru)";
  write_text(job.path, broken);
  REQUIRE(job.until([&] { return job.status().last_error.has_value(); }));
  CHECK(job.status().state == "on");
  const CommandReply reply = job.ask(CommandVerb::off, "off");
  CHECK(reply.outcome == CommandOutcome::done);
  CHECK(reply.message.find("the config file was not changed: ") == 0);
  CHECK(job.settled("off").outcome == CommandOutcome::done);
  CHECK(job.status().state == "off");
  CHECK(read_text(job.path) == broken);
  CHECK(job.ask(CommandVerb::on, "on").outcome == CommandOutcome::invalid_config);
}

TEST_CASE("off is decided without the file if its disk hangs and written when the disk answers") {
  ServedJob job(kOn);
  REQUIRE(job.until_state("on"));
  {
    const ServedJob::BlockedDisk blocked(job.config_disk);
    job.send_command(ServedJob::command(CommandVerb::off, "off"));
    job.turns(Ticks{900});
    CHECK(job.answers.empty());
    job.turns(Ticks{1'000});
    REQUIRE(job.answer_to("off"));
    CHECK(job.answer_to("off")->message.find("not written within a second") != std::string::npos);
    REQUIRE(job.until_state("off"));
    CHECK(read_text(job.path) == kOn);
  }
  REQUIRE(job.until([&] { return read_text(job.path) == kOff; }));
  job.turns(Ticks{3'000});
  CHECK(job.status().state == "off");
  CHECK(job.history().size() == 2);  // the start and the off
}

TEST_CASE("a hub may end after its ranks even if the disk of the config never answers an edit") {
  OffJob job;
  const ServedJob::BlockedDisk blocked(job.config_disk);
  job.send_command(ServedJob::command(CommandVerb::on, "on"));
  job.turns(Ticks{2'900});
  CHECK(job.service->busy());
  CHECK_FALSE(job.service->may_exit());
  job.turns(Ticks{200});
  REQUIRE(job.answer_to("on"));
  CHECK_FALSE(job.service->busy());
  job.ranks.clear();
  CHECK(job.until([&] { return job.service->may_exit(); }));
}

TEST_CASE("an off that follows an on while the disk hangs wins when the disk answers") {
  OffJob job;
  {
    const ServedJob::BlockedDisk blocked(job.config_disk);
    job.send_command(ServedJob::command(CommandVerb::on, "on"));
    job.turns(Ticks{100});
    job.send_command(ServedJob::command(CommandVerb::off, "off"));
    job.turns(Ticks{4'000});
    CHECK(job.answer_to("on"));
    CHECK(job.answer_to("off"));
  }
  REQUIRE(job.until([&] { return read_text(job.path) == kOff && !job.service->busy(); }));
  job.turns(Ticks{3'000});
  REQUIRE(job.until([&] { return !job.service->busy(); }));
  CHECK(read_text(job.path) == kOff);
  CHECK(job.status().state == "off");
}

TEST_CASE("a change whose disk hangs is answered after three seconds and made when the disk answers") {
  OffJob job;
  {
    const ServedJob::BlockedDisk blocked(job.config_disk);
    job.send_command(ServedJob::command(CommandVerb::on, "on"));
    job.turns(Ticks{2'900});
    CHECK(job.answers.empty());
    job.turns(Ticks{200});
    REQUIRE(job.answer_to("on"));
    CHECK(job.answer_to("on")->outcome == CommandOutcome::incomplete);
    CHECK_FALSE(job.ask(CommandVerb::verdict, "on").settled);
    CHECK(job.ask(CommandVerb::status).status->state == "off");
  }
  CHECK(job.settled("on").outcome == CommandOutcome::done);
  CHECK(read_text(job.path) == kOn);
}

TEST_CASE("while the disk hangs only so many changes wait for it, and off is never refused") {
  OffJob job;
  {
    const ServedJob::BlockedDisk blocked(job.config_disk);
    for (int i = 0; i < 64; ++i)
      job.send_command(ServedJob::command(CommandVerb::on, "on" + std::to_string(i)));
    const CommandReply reply = job.ask(CommandVerb::on, "one more");
    CHECK(reply.outcome == CommandOutcome::failed);
    CHECK(reply.message == "64 changes already wait for the config file's disk");
    job.send_command(ServedJob::command(CommandVerb::off, "off"));
    job.turns(Ticks{1'900});
    REQUIRE(job.answer_to("off"));
    CHECK(job.answer_to("off")->outcome == CommandOutcome::done);
  }
  REQUIRE(job.until([&] { return !job.service->busy(); }));
  CHECK(job.ask(CommandVerb::on, "later").outcome != CommandOutcome::failed);
}

TEST_CASE("with write_back false a command leaves the file alone and says so") {
  const std::string text = R"({"write_back": false, "dynamic_on": false})";
  ServedJob job(text);
  REQUIRE(job.until([&] { return job.status().reason == "never turned on"; }));
  const std::string unchanged = "the config file was not changed: write_back is false";
  CHECK(job.ask(ServedJob::set("set", {{"collect_times", "5"}})).message ==
        unchanged + "; collecting stays off");
  CHECK(job.ask(CommandVerb::on, "one").message.find(unchanged) == 0);
  CHECK(job.settled("one").outcome == CommandOutcome::done);
  CHECK(read_text(job.path) == text);
  CHECK(job.ask(CommandVerb::verdict, "unknown").outcome == CommandOutcome::failed);
}

TEST_CASE("the end of a plan is written back") {
  ServedJob job(R"({"dynamic_on": true, "collect_times": 2})");
  REQUIRE(job.until([&] { return read_text(job.path) == R"({"dynamic_on": false, "collect_times": 2})"; }));
  CHECK(job.ranks[0]->collected == std::vector<std::int64_t>{1, 2});
  CHECK(job.status().reason.rfind("finished", 0) == 0);
  CHECK(job.history().size() == 1);
}

// A job that cannot write its config back.
struct FailingWriteBack : ServedJob {
  const std::string on = R"({"dynamic_on": true, "collect_times": 2})";
  const fs::path note = output / ".gradmon" / "writeback.json";

  FailingWriteBack() : ServedJob(R"({"dynamic_on": true, "collect_times": 2})") {
    REQUIRE(::chmod(path.c_str(), 0444) == 0);
    REQUIRE(until([&] { return status().last_error.has_value(); }));
  }
};

TEST_CASE("a write-back that fails is reported once and tried again until it succeeds, and so is its note") {
  FailingWriteBack job;
  CHECK(job.status().last_error->text.find("dynamic_on could not be written back: ") == 0);
  job.turns(Ticks{10'000});
  CHECK(read_text(job.path) == job.on);
  CHECK(job.status().last_error->count == 1);
  CHECK(fs::exists(job.note));
  REQUIRE(::chmod(job.path.c_str(), 0644) == 0);
  REQUIRE(job.until([&] { return read_text(job.path) == R"({"dynamic_on": false, "collect_times": 2})"; }));
  CHECK(job.until([&] { return !job.status().last_error; }));
  CHECK(eventually([&] { return !fs::exists(job.note); }));
}

TEST_CASE("a write-back that fails is not tried again after another save of the file") {
  FailingWriteBack job;
  const std::string another = R"({"dynamic_on": true, "collect_times": 1000000000})";
  write_text(job.directory / "new", another);
  fs::rename(job.directory / "new", job.path);
  REQUIRE(job.until([&] { return job.status().collect_times == 1'000'000'000; }));
  job.turns(Ticks{10'000});
  CHECK(read_text(job.path) == another);
  CHECK(job.status().state == "on");
}

TEST_CASE("a write-back that keeps failing is tried less and less often and its note is written once") {
  FailingWriteBack job;
  const auto inode = [&] {
    struct stat status {};
    return ::stat(job.note.c_str(), &status) == 0 ? status.st_ino : 0;
  };
  const auto written = inode();
  REQUIRE(written != 0);
  job.turns(Ticks{2'500});  // at least one more try
  CHECK(inode() == written);
  // Each try writes the note where it is missing.
  Ticks longest{};
  for (int i = 0; i < 3; ++i) {
    const Ticks before = job.now;
    REQUIRE(fs::remove(job.note));
    REQUIRE(job.until([&] { return fs::exists(job.note); }));
    longest = std::max(longest, job.now - before);
  }
  CHECK(longest > Ticks{10'000});
}

TEST_CASE("a dry run validates the change and asks every rank and changes nothing") {
  ServedJob job(R"({"collect_times": 5})");
  const CommandReply reply = job.ask(ServedJob::set("r", {{"dynamic_on", "true"}}, CommandVerb::dry_run));
  CHECK(reply.config_before == R"({"collect_times": 5})");
  CHECK(reply.config_text == R"({"dynamic_on": true, "collect_times": 5})");
  REQUIRE(reply.rank_answers.size() == 1);
  CHECK(reply.rank_answers[0].matches == 1);
  CHECK(job.ask(ServedJob::set("bad", {{"collect_times", "-1"}}, CommandVerb::dry_run)).outcome ==
        CommandOutcome::invalid_config);
  CHECK(read_text(job.path) == R"({"collect_times": 5})");
  CHECK(job.history().empty());
}

TEST_CASE("a job waits for a missing config") {
  ServedJob job("");
  REQUIRE(job.status().last_error);
  fs::remove(job.path);
  CHECK(job.ask(CommandVerb::config).outcome == CommandOutcome::failed);
  write_text(job.path, kOn);
  REQUIRE(job.until_state("on"));
  CHECK(job.ask(CommandVerb::config).config_text == kOn);
}

TEST_CASE("of too many dry runs the oldest is dropped whatever its request id") {
  ServedJob job(kOff, 2);  // The other rank never answers.
  for (char id = 'z'; id >= 'j'; --id)
    job.send_command(ServedJob::command(CommandVerb::dry_run, std::string(1, id)));
  REQUIRE(job.until([&] { return job.answer_to("j") != nullptr; }));
  CHECK(job.answer_to("k") != nullptr);
  CHECK(job.answer_to("y") != nullptr);
  CHECK(job.answer_to("z") == nullptr);
}

TEST_CASE("static mode answers status and refuses commands") {
  ServedJob job("{}", 1, 1, false);
  CHECK(job.ask(CommandVerb::status).status->mode == "static");
  CHECK(job.ask(CommandVerb::config).config_text == "{}");
  for (const CommandVerb verb : {CommandVerb::on, CommandVerb::off, CommandVerb::set, CommandVerb::dry_run}) {
    const CommandReply reply = job.ask(verb);
    CHECK(reply.outcome == CommandOutcome::failed);
    CHECK(reply.message.find("static mode") == 0);
  }
}

TEST_CASE("an edit in static mode is logged once") {
  ServedJob job("{}", 1, 1, false);
  const auto times_logged = [&] {
    return std::count_if(job.log_lines.begin(), job.log_lines.end(),
                         [](const std::string& line) { return line.find("static mode: edits are") == 0; });
  };
  job.turns(Ticks{2'000});
  CHECK(times_logged() == 0);
  write_text(job.path, kOn);
  CHECK(job.until([&] { return times_logged() == 1; }));
  CHECK(job.ask(CommandVerb::on).outcome == CommandOutcome::failed);
  CHECK(times_logged() == 1);
  CHECK(job.status().state == "off");
}

TEST_CASE("messages of unknown ranks change nothing") {
  OffJob job;
  for (const int rank : {-1, 1, 1 << 30}) {
    for (const Message& message : std::vector<Message>{
             Hello{}, Left{Step{1}}, Disconnected{}, Progress{}, Ready{}, Reject{}, Busy{}, Applied{},
             Finished{}, Offered{}, DryRunAnswer{}, Welcome{}, Decided{}, Replaced{}, AlertReport{}}) {
      job.service->on_message({"epoch", Rank{rank}, 1, message});
      job.service->on_message({"", Rank{rank}, 0, message});
    }
  }
  job.turns(Ticks{500});
  job.ask(CommandVerb::on, "on");
  CHECK(job.settled("on").outcome == CommandOutcome::done);
}

TEST_CASE("the history is not queued again and again while the output disk hangs") {
  ServedJob job(kOff);
  {
    const ServedJob::BlockedDisk blocked(job.run_disk);
    job.ask(CommandVerb::on, "one");
    job.settled("one");
    job.ask(CommandVerb::off, "two");
    job.settled("two");
    CHECK(job.history().size() == 2);
  }
  const fs::path file = job.output / ".gradmon/epoch/history.jsonl";
  REQUIRE(
      job.until([&] { return fs::exists(file) && read_text(file).find("\"two\"") != std::string::npos; }));
  const std::string written = read_text(file);
  CHECK(std::count(written.begin(), written.end(), '\n') == 2);  // each change once, as it ended
}

// --- The job's directory in the output directory cannot be written. ---

// A file in the place of the epoch's directory: no history and no alert can be written.
struct BlockedEpoch {
  ServedJob job{kOff};
  const fs::path epoch = job.output / ".gradmon" / "epoch";

  BlockedEpoch() {
    fs::create_directories(epoch.parent_path());
    write_text(epoch, "in the way");
  }
  // True if everything that was due has been tried.
  bool has_tried_to_save() {
    for (int i = 0; i < 5; ++i) {
      job.turn();
      if (!job.run_disk.drain(std::chrono::seconds(20))) return false;
    }
    return true;
  }
  bool is_written(const std::string& file, const std::string& text) {
    return job.until([&] { return read_text(epoch / file).find(text) != std::string::npos; });
  }
};

TEST_CASE("history that could not be written is written once it can be") {
  BlockedEpoch blocked;
  blocked.job.ask(CommandVerb::on, "one");
  blocked.job.settled("one");
  REQUIRE(blocked.has_tried_to_save());
  fs::remove(blocked.epoch);
  CHECK(blocked.is_written("history.jsonl", "\"one\""));
}

TEST_CASE("alerts that could not be written are written once they can be, in their order") {
  BlockedEpoch blocked;
  REQUIRE(blocked.job.until([&] { return blocked.job.status().ranks[0].step > 5; }));
  for (const char* rule : {"first", "second"}) {
    AlertReport report;
    report.alerts.resize(1);
    report.alerts[0].rule = rule;
    blocked.job.ranks[0]->raise(report);
    REQUIRE(blocked.has_tried_to_save());
  }
  fs::remove(blocked.epoch);
  REQUIRE(blocked.is_written("alerts.jsonl", "second"));
  const std::string written = read_text(blocked.epoch / "alerts.jsonl");
  CHECK(written.find("first") < written.find("second"));
  CHECK(std::count(written.begin(), written.end(), '\n') == 2);
}

TEST_CASE("of more alerts than are kept until they can be written the newest are written") {
  BlockedEpoch blocked;
  REQUIRE(blocked.job.until([&] { return blocked.job.status().ranks[0].step > 5; }));
  AlertReport report;
  report.alerts.resize(kMostAlertsInAReport);
  for (std::size_t i = 0; i < AlertHistory::kMostKept / kMostAlertsInAReport; ++i)
    blocked.job.ranks[0]->raise(report);
  report.alerts.resize(1);
  report.alerts[0].rule = "newest";
  blocked.job.ranks[0]->raise(report);
  REQUIRE(blocked.has_tried_to_save());
  fs::remove(blocked.epoch);
  CHECK(blocked.is_written("alerts.jsonl", "newest"));
}

TEST_CASE("a disk that does not answer is in the status and its begin and end are in the log") {
  ServedJob job(kOff);
  for (const bool of_config : {true, false}) {
    const std::string place =
        of_config ? "config " + job.path.string() : "output directory " + job.output.string();
    const std::string silent = place + ": no answer from the disk";
    {
      const ServedJob::BlockedDisk blocked(of_config ? job.config_disk : job.run_disk);
      REQUIRE(job.until([&] { return job.times_logged(silent) == 1; }));
      CHECK(job.warns(silent + " for "));
    }
    CHECK(job.until([&] { return !job.warns(silent); }));
    CHECK(job.until([&] { return job.times_logged("resolved: " + silent) == 1; }));
  }
}

TEST_CASE("a refused edit is the reason and the last error in the status until a valid edit") {
  ServedJob job(kOff);
  write_text(job.path, R"({"dynamic_on": tru})");
  REQUIRE(job.until([&] { return job.status().last_error.has_value(); }));
  CHECK(job.status().reason.rfind("the newest edit is refused: " + job.path.string() + ":1:", 0) == 0);
  write_text(job.path, kOff);
  CHECK(job.until([&] { return !job.status().last_error; }));
  CHECK(job.status().reason == "never turned on");
}

TEST_CASE("a job that starts with dynamic_on false says so, and whether an earlier job wrote it back") {
  const auto starts_off = [](const ServedJob& job, const std::string& why) {
    return job.times_logged("off: " + why + " (true in " + job.path.string() +
                            ", or gradmonctl on, starts collecting)") == 1;
  };
  ServedJob first(R"({"dynamic_on": false, "wg_distribution": true, "collect_times": 2})");
  CHECK(first.until([&] { return starts_off(first, "dynamic_on is false"); }));
  CHECK(first.status().reason == "never turned on");
  REQUIRE(first.ask(CommandVerb::on, "on").outcome == CommandOutcome::done);
  REQUIRE(first.until([&] { return first.status().reason == "finished"; }));
  REQUIRE(
      first.until([&] { return read_text(first.path).find("\"dynamic_on\": false") != std::string::npos; }));
  const std::string last = std::to_string(first.history().back().finished_step);
  first.service->close();
  first.run_disk.drain(std::chrono::seconds(10));
  ServedJob second("", 1, 1, true, &first);
  const std::string why =
      "dynamic_on is false: an earlier job wrote it back when its collection ended with step " + last;
  CHECK(second.until([&] { return starts_off(second, why); }));
  CHECK(second.status().reason == why);
}

TEST_CASE("the reason of a refused change goes when the user no longer asks for it") {
  ServedJob job(kOff);
  REQUIRE(job.until([&] { return job.status().reason == "never turned on"; }));
  job.ranks[0]->matches = 0;
  job.ask(CommandVerb::on, "on");
  REQUIRE(job.until([&] { return job.status().reason == "no target matches on any rank"; }));
  SECTION("by a save") {
    write_text(job.path, kOff + "\n");
    CHECK(job.until([&] { return job.status().reason == "never turned on"; }));
  }
  SECTION("by a command") {
    job.ask(CommandVerb::off, "off");
    CHECK(job.status().reason == "never turned on");
  }
}

TEST_CASE("the status of a job in static mode tells its steps") {
  ServedJob job(R"({"dynamic_on": false, "wg_distribution": true, "start_step": 3, "collect_times": 2})", 1,
                1, false);
  REQUIRE(job.until([&] { return job.status().ranks[0].step > 0; }));
  const Status status = job.status();
  CHECK(status.effective_step == 3);
  CHECK(status.collect_times == 2);
  CHECK(job.until([&] { return job.status().reason == "finished" && job.status().collected == 2; }));
}

TEST_CASE("a job has finished when all its ranks have and the status names those that have not") {
  ServedJob job(kOff, 2, 2);
  Command on = ServedJob::command(CommandVerb::on, "on");
  on.collect_times = 200;
  REQUIRE(job.ask(on).outcome == CommandOutcome::done);
  REQUIRE(job.until_state("on"));
  job.ranks[1]->trainer_hangs = true;
  REQUIRE(job.until([&] { return job.status().reason.rfind("waiting for rank 1 to finish", 0) == 0; }));
  CHECK(job.status().state == "on");
  job.ranks[1]->trainer_hangs = false;
  CHECK(job.until([&] { return job.status().reason.rfind("finished", 0) == 0; }));
  CHECK(job.status().state == "off");
}

// Whether `condition` becomes true while both jobs run.
bool both(ServedJob& one, ServedJob& two, const std::function<bool()>& condition) {
  return one.until([&] {
    two.turn();
    return condition();
  });
}

TEST_CASE("two jobs with one config name each other and ignore each other's write-backs") {
  const bool launch_ends_first = GENERATE(true, false);
  ServedJob one(kOff);
  ServedJob two(kOff, 1, 1, true, &one);
  ServedJob& late = launch_ends_first ? two : one;
  const std::string writer = launch_ends_first ? "launch" : "second";
  const std::string config = "config " + one.path.string() + " is used by another job, too: job ";
  REQUIRE(both(one, two, [&] { return one.warns(config + "second") && two.warns(config + "launch"); }));
  write_text(one.path, R"({"dynamic_on": true, "collect_times": 400})");
  REQUIRE(both(one, two, [&] { return one.status().state == "on" && two.status().state == "on"; }));
  late.ranks[0]->trainer_hangs = true;
  REQUIRE(both(one, two,
               [&] { return read_text(one.path) == R"({"dynamic_on": false, "collect_times": 400})"; }));
  const std::string line = one.path.string() + " was written by job " + writer + " on " + host_name() +
                           ", not by the user: ignored";
  REQUIRE(both(one, two, [&] { return late.times_logged(line) == 1; }));
  late.turns(Ticks{2'000});
  CHECK(late.status().state == "on");
  late.ranks[0]->trainer_hangs = false;
  CHECK(both(one, two, [&] { return late.status().reason.rfind("finished", 0) == 0; }));
  CHECK(late.ranks[0]->collected.size() == 400);
}

TEST_CASE("a job whose ranks have ended no longer counts as another one, although its hub runs on") {
  ServedJob one(kOff);
  std::filesystem::create_directories(one.output / ".gradmon");
  ServedJob two(kOff, 1, 1, true, &one);
  const std::string config = "config " + one.path.string() + " is used by another job, too: job launch";
  const std::string output = "output directory " + one.output.string() + " is used by another job, too";
  REQUIRE(both(one, two, [&] { return two.warns(config) && two.warns(output); }));
  one.ranks[0]->ended = true;
  one.ranks[0]->say(Disconnected{});
  CHECK(both(one, two, [&] { return !two.warns(config) && !two.warns(output); }));
  CHECK(one.status().ranks.front().state == "dropped");
}

TEST_CASE("ranks that the status has no room for are counted") {
  ServedJob job(kOff, 4'001, 1);
  const Status status = job.status();
  CHECK(status.ranks.size() == 4'000);
  REQUIRE(status.unlisted);
  CHECK(status.unlisted->counted == 1);
  CHECK(count_agreeing_ranks(status).counted == 4'001);
  CHECK(count_agreeing_ranks(status).agreeing <= 1);
}

TEST_CASE("a save that an earlier job left beside a newer one is named until it is removed") {
  ServedJob job(kOff);
  const auto side =
      job.path.parent_path() / ("." + job.path.filename().string() + ".gradmon-prev-" + std::string(12, 'a') +
                                "-" + std::string(12, 'b') + "-" + std::string(16, '0') + "-00000000");
  write_text(side, kOn);
  std::filesystem::last_write_time(side,
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  const std::string line =
      "config " + job.path.string() + ": an earlier save is in " + side.string() + ": copy it or remove it";
  REQUIRE(job.until([&] { return job.warns(line); }));
  CHECK(read_text(job.path) == kOff);
  std::filesystem::remove(side);
  CHECK(job.until([&] { return !job.warns(line); }));
}

}  // namespace

}  // namespace gradmon
