// SPDX-License-Identifier: Apache-2.0
// Many ranks with a lasting fault: what each rank logs, and what the lead hub lists. All of the path but the
// sockets: records, rules, log, outbox, list, file.
#include <limits>

#include "control/alerts/alert_history.h"
#include "control/host/history_file.h"
#include "control/link/report_outbox.h"
#include "control/log.h"
#include "runtime/collect/alerts.h"
#include "tests/support/catch.h"
#include "tests/support/scale.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/sample_records.h"

namespace gradmon {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kMostLines = 200;  // of a rank, in an hour
constexpr std::size_t kAllBytes = std::size_t{1} << 30U;

std::vector<std::string> logged;

// Ranks whose steps take a second each, and the lead hub's list of their alerts.
class Job {
 public:
  Job(int ranks, std::size_t parameters) : parameters_(parameters) {
    set_log_sink([](LogLevel, std::string_view line) { logged.emplace_back(line); });
    for (std::size_t i = 0; i < parameters; ++i)
      targets_.push_back(names_->intern("layers." + std::to_string(i) + ".weight"));
    loss_ = names_->intern("loss");
    lines.resize(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) start(Rank{rank});
  }

  // A step of all ranks: the norm of each gradient, and the loss.
  template <typename Norm>
  void step(std::int64_t step, Norm norm) {
    const auto now = began_ + std::chrono::seconds(step);
    for (int rank = 0; rank < static_cast<int>(stages_.size()); ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      std::vector<Record> records;
      for (std::size_t i = 0; i <= parameters_; ++i) records.push_back(record(step, i, norm(rank)));
      logged.clear();
      CHECK_FALSE(stages_[at]->on_step(Step{step}, records, now));
      lines[at].insert(lines[at].end(), logged.begin(), logged.end());
      while (const auto report = outboxes_[at]->take(now)) receive(rank, *report);
    }
  }

  std::vector<std::vector<std::string>> lines;  // by rank
  AlertHistory list{1};
  std::vector<AlertHistory::Kept> to_save;

 private:
  void start(Rank rank) {
    outboxes_.push_back(std::make_unique<AlertOutbox>(std::make_shared<Mailbox>()));
    AlertStage::Settings settings{
        {{Anomaly::nan}, {Anomaly::spike}, {Anomaly::turbulence, 3.0}, {Anomaly::vanish}},
        nullptr,
        find_alert_origin(rank, {}),
        names_};
    settings.on_alerts = [outbox = outboxes_.back().get()](const AlertReport& alerts) {
      outbox->put(alerts);
    };
    stages_.push_back(std::make_unique<AlertStage>(std::move(settings), std::make_shared<AlertState>()));
    stages_.back()->begin_revision({});
  }

  Record record(std::int64_t step, std::size_t i, double norm) const {
    Record record = plain_record(step, i);
    const bool scalar = i == parameters_;
    record.target = scalar ? loss_ : targets_[i];
    if (scalar) {
      record.kind = Kind::scalar;
      record.mask = bit_of(Column::value);
    }
    record.values[static_cast<std::size_t>(scalar ? static_cast<std::size_t>(Column::value)
                                                  : static_cast<std::size_t>(Op::norm))] = norm;
    return record;
  }

  void receive(int rank, const AlertReport& report) {
    for (const Alert& alert : list.add(Rank{rank}, "process", report, 0)) to_save.push_back({alert, ""});
  }

  const std::size_t parameters_;
  const AlertOutbox::Clock::time_point began_ = AlertOutbox::Clock::now();
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();
  std::vector<std::uint32_t> targets_;
  std::uint32_t loss_ = 0;
  std::vector<std::unique_ptr<AlertOutbox>> outboxes_;
  std::vector<std::unique_ptr<AlertStage>> stages_;
};

std::set<std::pair<std::int64_t, std::string>> faults_of(const std::vector<Alert>& alerts) {
  std::set<std::pair<std::int64_t, std::string>> faults;
  for (const Alert& alert : alerts) faults.emplace(alert.step, alert.rule);
  return faults;
}

TEST_CASE("of ranks whose values all become NaN, each logs one line, and the first alerts stay listed") {
  const std::int64_t steps = scaled(300, 1'000);
  Job job(scaled(4, 64), scaled<std::size_t>(100, 1'000));
  for (std::int64_t step = 0; step < 160 + steps; ++step)
    job.step(step, [=](int) { return step >= 160 ? kNan : step == 60 ? 50.0 : 1.0; });
  for (std::size_t rank = 0; rank < job.lines.size(); ++rank) {
    REQUIRE(job.lines[rank].size() == 2);
    const std::string more = ", and " + std::to_string(scaled(100, 1'000)) + " more series";
    CHECK(job.lines[rank][0] ==
          "spike at step 60, rank " + std::to_string(rank) + ": loss is 50 (usually 1)" + more);
    CHECK(job.lines[rank][1].find("NaN at step 160, rank " + std::to_string(rank) + ": loss is nan") == 0);
  }
  const auto listed = job.list.find({0, {}, kAllBytes});
  CHECK(faults_of(listed) ==
        std::set<std::pair<std::int64_t, std::string>>{{60, "AnomalySpike"}, {160, "AnomalyNan"}});
  CHECK(listed.front().tag_name == "0:loss/rank0/scalar");
  CHECK(listed.front().left_out + kMostAlertsInAReport == static_cast<std::uint64_t>(scaled(101, 1'001)));
}

// NaN, spikes, and norms that vanish come and go in an hour of steps, far enough apart to be alerts of their
// own.
TEST_CASE(
    "a rank whose faults come and go logs at most 200 lines an hour, and hides neither rule nor the begin") {
  Job job(scaled(2, 16), scaled<std::size_t>(20, 200));
  constexpr std::int64_t kSteps = 3'600;
  const double sizes[] = {1, 1e9, 1, 0, 0, 0, 1, 40};
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const double size = step < 100 || step % 24 > 7 ? 1.0 : sizes[step % 8];
    job.step(step, [=](int rank) { return step > 1'000 && step % 5 == rank % 5 ? kNan : size; });
  }
  for (const auto& lines : job.lines) {
    CHECK(lines.size() > 40);
    CHECK(lines.size() <= kMostLines);
  }
  const auto listed = job.list.find({0, {}, kAllBytes});
  CHECK(listed.size() <= AlertHistory::kMostKept + 6 * AlertHistory::kMostFirstOfARule);
  CHECK(listed.front().step == 103);
  std::set<std::string> rules;
  for (const Alert& alert : listed) rules.insert(alert.rule);
  CHECK(rules.count("AnomalyNan") == 1);
  CHECK(listed.back().step > kSteps - 100);

  job.to_save.resize(std::min(job.to_save.size(), scaled<std::size_t>(5'000, 50'000)));
  const TemporaryDirectory directory;
  for (std::size_t i = 0; i < job.to_save.size(); i += 100) {
    const auto begin = job.to_save.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end = job.to_save.begin() + static_cast<std::ptrdiff_t>(std::min(i + 100, job.to_save.size()));
    REQUIRE(append_alerts(directory / "alerts.jsonl", {begin, end}, scaled(200'000, 4'000'000)));
  }
  const auto read = read_alerts(directory / "alerts.jsonl");
  CHECK(read.size() < job.to_save.size());
  CHECK(read.front().alert.number == job.to_save.front().alert.number);
  CHECK(read.back().alert.number == job.to_save.back().alert.number);
}

}  // namespace
}  // namespace gradmon
