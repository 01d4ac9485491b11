// SPDX-License-Identifier: Apache-2.0
// The lead hub's memory over many changes. A change here is a capture that an alert has started, or the
// return from one: it needs no save of the config file.
#include <malloc.h>

#include <cstdlib>

#include "control/hub/job_service.h"
#include "control/log.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

constexpr Ticks kTurn{50};
constexpr std::int64_t kMostGrowth = std::int64_t{1} << 20;

// All ranks of a job, as the lead hub hears them: each answers at once, and jumps to the last step of a
// capture.
class AnsweringRanks {
 public:
  AnsweringRanks(int count, std::function<void(const Envelope&)> say)
      : say_(std::move(say)), incarnations_(static_cast<std::size_t>(count)) {}

  void join() {
    Hello hello;
    hello.launch_id = "launch";
    hello.world_size = static_cast<int>(incarnations_.size());
    for (int rank = 0; rank < hello.world_size; ++rank) {
      hello.process_id = "process " + std::to_string(rank);
      hello.number = ++number_;
      say_({"", Rank{rank}, 0, hello});
    }
  }
  void hear(const Outgoing& outgoing) {
    if (const auto* decided = std::get_if<Decided>(&outgoing.message)) apply(*decided);
    for (const auto& [rank, incarnation] : outgoing.to) {
      if (std::holds_alternative<Welcome>(outgoing.message)) of(rank) = incarnation;
      if (const auto* offer = std::get_if<Offer>(&outgoing.message))
        say(rank, Offered{offer->revision, offer->plan->config_sha256, 1, ""});
      if (const auto* prepare = std::get_if<Prepare>(&outgoing.message))
        say(rank, Ready{prepare->revision, prepare->config_sha256, Step{progress_.step.value + 1}});
      if (std::holds_alternative<Decided>(outgoing.message)) say(rank, progress_);
    }
  }
  void report() {
    progress_.number = ++number_;
    for (int rank = 0; rank < static_cast<int>(incarnations_.size()); ++rank) say(rank, progress_);
  }
  std::uint64_t applied() const { return progress_.applied.value; }
  void raise_alert() {
    AlertReport report;
    report.alerts.resize(1);
    report.alerts[0].step = progress_.step.value;
    report.alerts[0].rule = "AnomalyNan";
    say(0, report);
  }

 private:
  std::uint64_t& of(int rank) { return incarnations_[static_cast<std::size_t>(rank)]; }
  void say(int rank, Message message) { say_({"epoch", Rank{rank}, of(rank), std::move(message)}); }
  void apply(const Decided& decided) {
    progress_.number = ++number_;
    progress_.closed = decided.last.closed;
    if (!decided.last.commit || decided.last.commit->revision <= progress_.applied) return;
    const Verdict& commit = *decided.last.commit;
    progress_.applied = commit.revision;
    progress_.applied_step = commit.effective;
    progress_.step = commit.effective;
    if (!commit.plan->returns_to) return;
    progress_.finished = commit.revision;
    progress_.step = schedule_of(*commit.plan, commit.effective).end();
  }

  const std::function<void(const Envelope&)> say_;
  std::vector<std::uint64_t> incarnations_;
  std::uint64_t number_ = 0;
  Progress progress_;
};

class LeadHub : private JobChannels {
 public:
  explicit LeadHub(int world) : ranks_(world, [this](const Envelope& said) { service_->on_message(said); }) {
    const auto config = directory_ / "config.json";
    write_text(config, R"({"dynamic_on": true, "collect_times": 1000000000,
      "on_alert": {"collect": {"xy_distribution": true}, "times": 1, "cooldown": 0}})");
    HubJob job;
    job.launch_id = "launch";
    job.world_size = world;
    job.output_dir = (directory_ / "out").string();
    job.lead.config_path = config.string();
    job.lead.dynamic = true;
    job.epoch = "epoch";
    service_ =
        std::make_unique<JobService>(job, JobResources{config_disk_, run_disk_, log_, mailbox_, *this});
    service_->open({});
    until([this] { return service_->status().reason != "starting"; });
    ranks_.join();
    until([this] { return ranks_.applied() == 1; });
  }
  ~LeadHub() { service_->close(); }
  LeadHub(const LeadHub&) = delete;
  LeadHub& operator=(const LeadHub&) = delete;

  // One capture, and the return from it.
  void capture() {
    const std::uint64_t returned = ranks_.applied() + 2;
    ranks_.raise_alert();
    until([&] { return ranks_.applied() == returned; });
  }
  // In bytes, with the disk at rest.
  std::int64_t memory() {
    run_disk_.drain(std::chrono::seconds{60});
    turn();
    run_disk_.drain(std::chrono::seconds{60});
    take_notes();
    const auto used = mallinfo2();
    return static_cast<std::int64_t>(used.uordblks + used.hblkhd);
  }

 private:
  void send(Outgoing one) override { to_ranks_.push_back(std::move(one)); }
  void reply(const std::string&, const std::string&, CommandReply) override {}
  void tell(LogLevel, const std::string&) override {}
  void publish(const std::vector<Alert>&) override {}
  void take_notes() {
    for (const auto& note : mailbox_->take()) note();
  }
  void turn() {
    take_notes();
    for (const Outgoing& outgoing : std::exchange(to_ranks_, {})) ranks_.hear(outgoing);
    service_->tick(kTurn);
    if (++turns_ % 20 == 0) ranks_.report();
  }
  template <class Condition>
  void until(const Condition& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (; !condition(); turn()) {
      if (std::chrono::steady_clock::now() >= end) FAIL("waited in vain");
    }
  }

  const TemporaryDirectory directory_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  NullDecisionLog log_;
  DiskThread config_disk_, run_disk_;
  std::vector<Outgoing> to_ranks_;
  int turns_ = 0;
  std::unique_ptr<JobService> service_;
  AnsweringRanks ranks_;
};

std::int64_t growth_over_last_half(int world, int captures) {
  if (GRADMON_SANITIZED) {
    WARN("skipped: a sanitizer has an allocator of its own");
    return 0;
  }
  set_log_sink([](LogLevel, std::string_view) {});
  mallopt(M_ARENA_MAX, 1);  // mallinfo2() counts one arena; the disk's threads would have others
  LeadHub hub(world);
  for (int i = 0; i < captures / 2; ++i) hub.capture();
  const std::int64_t half = hub.memory();
  for (int i = captures / 2; i < captures; ++i) hub.capture();
  const std::int64_t whole = hub.memory();
  WARN(world << " ranks: " << half << " bytes after " << captures / 2 << " captures, " << whole << " after "
             << captures);
  return whole - half;
}

TEST_CASE("10000 changes of a job of 64 ranks leave the lead hub's memory flat") {
  CHECK(growth_over_last_half(64, 5'000) <= kMostGrowth);
}

// Takes a minute of a core.
TEST_CASE("500 captures of a job of 16384 ranks leave the lead hub's memory flat") {
  const char* const scale = std::getenv("GRADMON_TEST_SCALE");
  if (scale == nullptr || scale != std::string("full")) {
    WARN("skipped: only with GRADMON_TEST_SCALE=full");
    return;
  }
  CHECK(growth_over_last_half(16'384, 500) <= kMostGrowth);
}

}  // namespace
}  // namespace gradmon
