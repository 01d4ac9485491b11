// SPDX-License-Identifier: Apache-2.0
#include "writers/alert_stage.h"

#include <sys/resource.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/files_in.h"
#include "tests/writers/sample_records.h"
#include "writers/queue/writer_thread.h"
#include "writers/sinks/memory_sink.h"

using namespace gradmon;
using namespace std::chrono_literals;

namespace {

// A rank whose records pass the queue, the writer thread and the alert stage.
class Rig {
 public:
  Rig() { Rig::start(); }

  void start() {
    queue_ = std::make_shared<RecordQueue>(QueueOptions{});
    writer_ = std::make_unique<WriterThread>(queue_, nullptr, Pauses{0ms, 0ms});
    state_ = std::make_shared<AlertState>();
    flight = std::make_shared<FlightRecorder>([this] { return scratch_ / "run"; }, names_);
    dump_ = std::make_shared<AnomalyDump>(
        [&]() -> tl::expected<std::filesystem::path, std::string> { return scratch_.path(); },
        std::vector<int>{0});
  }

  void begin(std::uint64_t revision, std::vector<AlertRule> rules) {
    revision_ = revision;
    Layout layout;
    layout.revision = Revision{revision};
    AlertStage::Settings settings{std::move(rules), dump_, {}, names_};
    settings.flight = flight;
    settings.keep_last = keep_last;
    settings.on_alerts = [this](const AlertReport& alerts) { received.push_back(alerts); };
    std::vector<std::unique_ptr<Sink>> sinks;
    sinks.push_back(std::make_unique<MemorySink>(std::make_shared<LastStep>()));
    writer_->begin_revision(layout, std::move(sinks),
                            std::make_unique<AlertStage>(std::move(settings), state_));
  }

  void step(std::int64_t step, double norm) {
    Record record = plain_record(step, 0, revision_);
    record.target = target_;
    record.values[static_cast<std::size_t>(Op::norm)] = norm;
    queue_->push(record);
    queue_->end_step(Revision{revision_}, Step{step});
  }

  void stop() { REQUIRE(writer_->stop(60s)); }

  std::vector<std::string> keys() const {
    std::vector<std::string> keys;
    const auto events = nlohmann::ordered_json::parse(read_text(file()));
    for (const auto& [key, event] : events.items()) keys.push_back(key);
    return keys;
  }
  std::filesystem::path file() const { return scratch_ / "anomaly.json"; }
  std::filesystem::path directory() const { return scratch_.path(); }
  std::vector<Alert> recent() const { return state_->recent.alerts(); }
  WriterStatus status() const { return writer_->status(); }

  std::vector<AlertReport> received;  // read it after stop()
  std::shared_ptr<FlightRecorder> flight;
  std::int64_t keep_last = 0;

 private:
  const TemporaryDirectory scratch_;
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();
  const std::uint32_t target_ = names_->intern("fc1.weight");
  std::uint64_t revision_ = 0;
  std::shared_ptr<RecordQueue> queue_;
  std::shared_ptr<AlertState> state_;
  std::shared_ptr<AnomalyDump> dump_;
  std::unique_ptr<WriterThread> writer_;
};

const AlertRule kTurbulence{Anomaly::turbulence, 0.5};
const AlertRule kNanRule{Anomaly::nan, 1e10};

}  // namespace

TEST_CASE("an alert reaches the program, the recent alerts and the dump") {
  Rig rig;
  rig.begin(1, {kTurbulence});
  rig.step(1, 5.55);
  rig.step(2, 27.77);
  rig.stop();
  REQUIRE(rig.received.size() == 1);
  CHECK(
      rig.received[0].alerts.at(0).message ==
      "Rule AnomalyTurbulence reports anomaly signal in ('0:fc1.weight/rank0/post_grad', 'norm') at step 2, "
      "current value 27.77, history mean 5.55.");
  CHECK(rig.recent().size() == 1);
  CHECK(rig.recent().at(0).message == rig.received[0].alerts[0].message);
  CHECK(rig.keys() == std::vector<std::string>{"0:fc1.weight/rank0/post_grad_step_2_call_0_norm"});
}

TEST_CASE("a fault that lasts is reported once, and dumped in each step") {
  Rig rig;
  rig.keep_last = 1;
  rig.begin(1, {kNanRule});
  for (std::int64_t step = 1; step < 6; ++step) rig.step(step, step == 1 ? 1 : std::nan(""));
  rig.begin(2, {kNanRule});
  rig.step(6, std::nan(""));
  rig.step(7, 1);
  rig.step(8, std::nan(""));
  rig.stop();
  REQUIRE(rig.received.size() == 2);
  CHECK((rig.received[0].alerts[0].step == 2 && rig.received[1].alerts[0].step == 8));
  CHECK(rig.recent().size() == 2);
  CHECK(rig.keys().size() == 6);
  CHECK(rig.flight->counts().written == 2);
}

TEST_CASE("an alert has the flight recorder write the steps before, apart from the rows of the sinks") {
  Rig rig;
  rig.keep_last = 2;
  rig.begin(1, {kTurbulence});
  for (std::int64_t step = 1; step < 5; ++step) rig.step(step, 5.55);
  rig.step(5, 27.77);
  rig.step(6, 5.55);
  rig.stop();
  CHECK(read_text(rig.directory() / "run" / "flight" / "grad_reduced_0-999.csv") ==
        "vpp_stage,name,step,norm,nans,shape,dtype\n"
        "0,fc1.weight,4,5.55,0,,\n0,fc1.weight,5,27.77,0,,\n");
  CHECK(rig.flight->counts().written == 2);
  CHECK(rig.status().written == 6);
  CHECK(rig.keys().size() == 1);
}

TEST_CASE("rows of an alert's step that come after the alert are written too") {
  const TemporaryDirectory scratch;
  const auto names = std::make_shared<NameTable>();
  AlertStage::Settings settings{{kNanRule}, nullptr, {}, names};
  settings.flight = std::make_shared<FlightRecorder>([&] { return scratch.path(); }, names);
  settings.keep_last = 9;
  AlertStage stage(settings, std::make_shared<AlertState>());
  stage.begin_revision({});
  Record row = plain_record(3, 0);
  row.values[static_cast<std::size_t>(Op::norm)] = 2e10;
  auto file = stage.on_step(Step{3}, {row}, {});
  REQUIRE((file && file->write()));
  file.reset();
  row.kind = Kind::scalar;
  row.mask = bit_of(Column::value);
  file = stage.on_step(Step{3}, {row}, {});
  REQUIRE((file && file->write()));
  row.step = 4;
  CHECK_FALSE(stage.on_step(Step{4}, {row}, {}));
  CHECK(files_in(scratch / "flight") == std::set<std::string>{"grad_reduced_0-999.csv", "scalar_0-999.csv"});
}

TEST_CASE("a restart of collection keeps the history and a restart of the job keeps the dump") {
  Rig rig;
  rig.begin(1, {kTurbulence});
  rig.step(1, 1);
  rig.begin(2, {kNanRule, kTurbulence});
  rig.step(5, 2);  // a first value would raise no alert
  rig.begin(3, {kNanRule});
  rig.step(6, 3e10);
  rig.stop();
  rig.start();
  rig.begin(1, {kTurbulence});
  rig.step(7, 1);
  rig.step(8, 2);
  rig.stop();
  CHECK(rig.keys() == std::vector<std::string>{"0:fc1.weight/rank0/post_grad_step_5_call_0_norm",
                                               "0:fc1.weight/rank0/post_grad_step_6_call_0_norm",
                                               "0:fc1.weight/rank0/post_grad_step_8_call_0_norm"});
}

TEST_CASE("a dump that a full disk refuses is in the status and is written when there is room") {
  Rig rig;
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{64, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  rig.begin(1, {kTurbulence});
  rig.step(1, 1);
  rig.step(2, 10);
  rig.step(3, 20);
  const bool refused = eventually([&] {
    return rig.status().last_error == "cannot write " + rig.file().string() + ".new: File too large";
  });
  // The writer may be at its next try.
  const bool removed = eventually([&] { return files_in(rig.directory()).empty(); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  CHECK(refused);
  CHECK(removed);
  rig.step(4, 1);
  rig.stop();
  CHECK(rig.keys().size() == 2);
  CHECK(rig.status().last_error.empty());
  CHECK(rig.status().written == 4);
}
