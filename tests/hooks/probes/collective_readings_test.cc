// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/collective_probe.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tests/support/catch.h"

namespace gradmon {
namespace {

// Work that completes when a test says so.
class ControlledWork : public c10d::Work {
 public:
  enum class WorkKind { future, no_future };
  explicit ControlledWork(WorkKind kind) {
    if (kind == WorkKind::future)
      future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_ ? future_ : c10d::Work::getFuture();
  }
  void complete() { future_ ? future_->markCompleted(c10::List<at::Tensor>()) : finish(); }
  void fail() {
    const auto error = std::make_exception_ptr(std::runtime_error("a peer is lost"));
    future_ ? future_->setError(error) : finish(error);
  }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};
using WorkKind = ControlledWork::WorkKind;

struct ReadingsFixture {
  CallSite site{"train.py[23]", {"train.py[23] main"}, 0};
  std::shared_ptr<CollectiveReadings> readings;

  explicit ReadingsFixture(CollectiveSettings settings = {})
      : readings(std::make_shared<CollectiveReadings>(settings, 1e-8, [this] { return site; })) {
    readings->open();
  }

  c10::intrusive_ptr<ControlledWork> call(const at::Tensor& tensor, WorkKind kind = WorkKind::future) {
    auto work = c10::make_intrusive<ControlledWork>(kind);
    if (auto scope = readings->on_call({"all_reduce", "gloo", 2, 0, {tensor}, {tensor}}))
      scope->on_return(work);
    return work;
  }
  CollectiveStep end() {
    readings->close();
    return readings->take();
  }
};

double norm_of(const Reading& reading) { return reading.stats.values[static_cast<std::size_t>(Op::norm)]; }

TEST_CASE("inputs are read before the call and outputs when the work completes") {
  CollectiveSettings settings;
  settings.inputs = true;
  ReadingsFixture fixture(settings);
  at::Tensor tensor = at::ones({4});
  const auto work = fixture.call(tensor, GENERATE(WorkKind::future, WorkKind::no_future));
  tensor.data_ptr<float>()[0] = 7;  // like communication: the version does not change
  work->complete();
  const CollectiveStep step = fixture.end();
  REQUIRE(step.rows.size() == 2);
  CHECK(step.rows[0].name == "all_reduce.pre_0@train.py[23]");
  CHECK(norm_of(step.rows[0].readings.at(0)) == 2);
  CHECK(step.rows[1].name == "all_reduce.post_0@train.py[23]");
  CHECK(norm_of(step.rows[1].readings.at(0)) == std::sqrt(52.0));
}

TEST_CASE("work that completes after its step is counted as late and has no row") {
  for (const WorkKind kind : {WorkKind::future, WorkKind::no_future}) {
    ReadingsFixture fixture;
    const auto work = fixture.call(at::ones({4}), kind);
    const CollectiveStep first = fixture.end();
    CHECK(first.rows.empty());
    fixture.readings->open();
    work->complete();
    const CollectiveStep second = fixture.end();
    CHECK(second.rows.empty());
    CHECK(first.late + second.late == 1);
  }
}

TEST_CASE("a call that returns after its step is counted as late and keeps no tensor") {
  for (const WorkKind kind : {WorkKind::future, WorkKind::no_future}) {
    ReadingsFixture fixture;
    const at::Tensor tensor = at::ones({4});
    auto scope = fixture.readings->on_call({"all_reduce", "gloo", 2, 0, {}, {tensor}});
    fixture.readings->close();
    scope->on_return(c10::make_intrusive<ControlledWork>(kind));
    scope.reset();
    CHECK(tensor.use_count() == 1);
    CHECK(fixture.readings->take().late == 1);
  }
}

TEST_CASE("failed work is counted and has no row") {
  for (const WorkKind kind : {WorkKind::future, WorkKind::no_future}) {
    ReadingsFixture fixture;
    fixture.call(at::ones({4}), kind)->fail();
    const CollectiveStep step = fixture.end();
    CHECK(step.rows.empty());
    CHECK(step.failed == 1);
    CHECK_FALSE(fixture.readings->fuse().failure());
  }
}

TEST_CASE("a call that throws is counted as failed") {
  ReadingsFixture fixture;
  fixture.readings->on_call({"all_reduce", "gloo", 2, 0, {}, {at::ones({4})}})->on_throw();
  fixture.readings->on_call({"all_reduce", "nccl", 2, 0, {}, {at::ones({4})}, true})->on_throw();
  CHECK(fixture.end().failed == 2);
}

// As NCCL's, where nobody asks for a work.
TEST_CASE("outputs of a synchronous call without a work are read when it returns") {
  ReadingsFixture fixture;
  const at::Tensor tensor = at::ones({4});
  const auto scope = fixture.readings->on_call({"all_reduce", "nccl", 2, 0, {tensor}, {tensor}, true});
  tensor.data_ptr<float>()[0] = 7;
  scope->on_return({});
  tensor.fill_(0);  // what the program does next
  const CollectiveStep step = fixture.end();
  REQUIRE(step.rows.size() == 1);
  CHECK(step.rows[0].name == "all_reduce.post_0@train.py[23]");
  CHECK(norm_of(step.rows[0].readings.at(0)) == std::sqrt(52.0));
  CHECK(step.failed + step.late + step.changed == 0);
}

struct Broadcast {
  at::Tensor tensor = at::ones({4});
  std::uint64_t number = 0;
  c10::intrusive_ptr<ControlledWork> work = {};
};

// As NCCL's between ProcessGroup::startCoalescing() and endCoalescing(): nothing is there yet.
void send_together(ReadingsFixture& fixture, const std::vector<Broadcast>& calls) {
  for (const Broadcast& call : calls) {
    if (call.work) call.work->complete();  // NCCL's says so at once
    fixture.readings
        ->on_call({"broadcast", "nccl", 2, 0, {call.tensor}, {call.tensor}, !call.work, call.number})
        ->on_return(call.work);
  }
}

c10::intrusive_ptr<ControlledWork> own_work() {
  return c10::make_intrusive<ControlledWork>(WorkKind::future);
}

TEST_CASE("outputs of coalesced calls are read when all of them are over, whatever their own works say") {
  ReadingsFixture fixture;
  const std::uint64_t number = begin_coalescing();
  CHECK(end_coalescing() == number);
  const std::vector<Broadcast> calls = {{at::ones({4}), number}, {at::ones({4}), number, own_work()}};
  send_together(fixture, calls);
  for (const Broadcast& call : calls) call.tensor.data_ptr<float>()[0] = 7;
  fixture.readings->on_coalesced(number + 1, CoalescedWork::waited_for);
  fixture.readings->on_coalesced(number, CoalescedWork::waited_for);
  fixture.readings->on_coalesced(number, CoalescedWork::waited_for);
  for (const Broadcast& call : calls) CHECK(call.tensor.use_count() == 1);
  const CollectiveStep step = fixture.end();
  REQUIRE(step.rows.size() == 1);
  REQUIRE(step.rows[0].readings.size() == 2);
  for (const Reading& reading : step.rows[0].readings) CHECK(norm_of(reading) == std::sqrt(52.0));
  CHECK(step.failed + step.late + step.changed + step.untold == 0);
}

TEST_CASE("coalesced calls whose outputs the program changes before it waits are counted") {
  ReadingsFixture fixture;
  const std::uint64_t number = begin_coalescing();
  end_coalescing();
  const Broadcast call{at::ones({4}), number};
  send_together(fixture, {call});
  at::Tensor(call.tensor).add_(1);
  fixture.readings->on_coalesced(number, CoalescedWork::waited_for);
  const CollectiveStep step = fixture.end();
  CHECK(step.rows.empty());
  CHECK(step.changed == 1);
}

TEST_CASE("coalesced calls without a work are over at once, but for the asynchronous ones") {
  ReadingsFixture fixture;
  const std::uint64_t number = begin_coalescing();
  end_coalescing();
  send_together(fixture, {{at::ones({4}), number}, {at::ones({4}), number, own_work()}});
  fixture.readings->on_coalesced(number, CoalescedWork::none);
  const CollectiveStep step = fixture.end();
  REQUIRE(step.rows.size() == 1);
  CHECK(step.rows[0].readings.size() == 1);
  CHECK(step.untold == 1);
}

TEST_CASE("coalesced calls of which nothing tells that they are over are counted, and keep no tensor") {
  ReadingsFixture fixture;
  Broadcast call;
  SECTION("when the step ends") {
    call.number = begin_coalescing();
    send_together(fixture, {call});
  }
  SECTION("when they have begun before the step") {
    call.number = coalescings();
    send_together(fixture, {call});
    CHECK(call.tensor.use_count() == 1);
  }
  SECTION("when the program drops the work") {
    call.number = begin_coalescing();
    send_together(fixture, {call});
    CHECK(call.tensor.use_count() == 2);
    fixture.readings->on_coalesced(call.number, CoalescedWork::dropped);
    CHECK(call.tensor.use_count() == 1);
  }
  end_coalescing();
  CHECK(fixture.end().untold == 1);
  CHECK(call.tensor.use_count() == 1);
  fixture.readings->open();
  fixture.readings->on_coalesced(call.number, CoalescedWork::waited_for);
  CHECK(fixture.end().rows.empty());
}

TEST_CASE("each thread coalesces its own calls") {
  const std::uint64_t first = begin_coalescing();
  CHECK(first == coalescings());
  std::thread([] { CHECK(end_coalescing() == 0); }).join();
  CHECK(end_coalescing() == first);
  CHECK(end_coalescing() == 0);
}

TEST_CASE("it is known whether collectives are observed") {
  CHECK_FALSE(collectives_are_observed());
  {
    const CollectiveObserver observer(
        std::make_shared<CollectiveReadings>(CollectiveSettings{}, 1e-8, [] { return CallSite(); }));
    CHECK(collectives_are_observed());
  }
  CHECK_FALSE(collectives_are_observed());
}

TEST_CASE("a call without a work that is neither synchronous nor coalesced has no row") {
  ReadingsFixture fixture;
  fixture.readings->on_call({"recv", "nccl", 2, 0, {}, {at::ones({4})}})->on_return({});
  const CollectiveStep step = fixture.end();
  CHECK(step.rows.empty());
  CHECK(step.untold == 1);
  CHECK(step.failed == 0);
}

// Throws where other works say that they have no future.
class UnusableWork : public c10d::Work {
 public:
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { throw 1; }
};

// NCCL's of an all_gather of unequal sizes: its future is complete at once, and knows no tensor whose stream
// would be waited for.
TEST_CASE("outputs on a device have no row if nothing tells when they are there") {
  for (const WorkKind kind : {WorkKind::future, WorkKind::no_future}) {
    ReadingsFixture fixture;
    const auto work = fixture.call(at::empty({4}, at::kMeta), kind);
    work->complete();
    const CollectiveStep step = fixture.end();
    CHECK(step.rows.empty());
    CHECK(step.untold == 1);
    fixture.readings->open();
    fixture.call(at::ones({4}), kind)->complete();
    CHECK(fixture.end().rows.size() == 1);
  }
}

// NCCL's isSuccess() throws whatever has happened.
class UnaskableWork : public c10d::Work {
 public:
  bool isSuccess() const override { throw std::runtime_error("not supported"); }
  void complete() { finish(); }
};

TEST_CASE("a completed work is not asked for its success but for its exception") {
  ReadingsFixture fixture;
  const auto work = c10::make_intrusive<UnaskableWork>();
  fixture.readings->on_call({"all_reduce", "gloo", 2, 0, {}, {at::ones({4})}})->on_return(work);
  work->complete();
  CHECK(fixture.end().rows.size() == 1);
  CHECK_FALSE(fixture.readings->fuse().failure());
}

TEST_CASE("a failure after a call has returned names the operator of the call") {
  ReadingsFixture fixture;
  fixture.readings->on_call({"all_reduce", "gloo", 2, 0, {}, {at::ones({4})}})
      ->on_return(c10::make_intrusive<UnusableWork>());
  REQUIRE(fixture.readings->fuse().failure());
  CHECK(fixture.readings->fuse().failure()->target == "all_reduce");
}

TEST_CASE("outputs written to before they are read are counted and have no row") {
  ReadingsFixture fixture;
  at::Tensor tensor = at::ones({4});
  const auto work = fixture.call(tensor, WorkKind::no_future);
  work->complete();
  tensor.add_(1);
  const CollectiveStep step = fixture.end();
  CHECK(step.rows.empty());
  CHECK(step.changed == 1);
}

// isCompleted() waits for another thread that uses the readings. Python's work does so: it waits for the
// GIL, whose holder may make a collective call.
class BlockingWork : public c10d::Work {
 public:
  explicit BlockingWork(std::shared_ptr<CollectiveReadings> readings) : readings_(std::move(readings)) {}
  bool isCompleted() override {
    answer_ = std::async(std::launch::async, [&] { readings_->take(); });
    answered = answer_.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    return true;
  }
  bool answered = false;

 private:
  const std::shared_ptr<CollectiveReadings> readings_;
  // Not local to isCompleted(): its destructor waits for the thread, which would never end if it waited for
  // isCompleted() to return. Keep last: the thread uses readings_.
  std::future<void> answer_;
};

TEST_CASE("polling work does not block another thread that uses the readings") {
  ReadingsFixture fixture;
  const auto work = c10::make_intrusive<BlockingWork>(fixture.readings);
  fixture.readings->on_call({"send", "gloo", 2, 0, {}, {at::ones({4})}})->on_return(work);
  fixture.end();
  CHECK(work->answered);
}

TEST_CASE("output tensors are kept until the work completes and no longer") {
  for (const WorkKind kind : {WorkKind::future, WorkKind::no_future}) {
    ReadingsFixture fixture;
    const at::Tensor tensor = at::ones({4});
    const auto work = fixture.call(tensor, kind);
    CHECK(tensor.use_count() > 1);
    work->complete();
    if (kind == WorkKind::no_future) fixture.readings->close();
    CHECK(tensor.use_count() == 1);
  }
}

TEST_CASE("work in progress keeps the readings alive until it completes") {
  c10::intrusive_ptr<ControlledWork> work;
  std::weak_ptr<CollectiveReadings> gone;
  {
    ReadingsFixture fixture;
    work = fixture.call(at::ones({4}));
    fixture.readings->close();
    gone = fixture.readings;
  }
  CHECK_FALSE(gone.expired());
  work->complete();
  CHECK(gone.expired());
}

TEST_CASE("a call is read if its own line or a caller's line matches a pattern") {
  CollectiveSettings settings;
  settings.code_lines = {R"(train\.py\[23\])", "("};
  ReadingsFixture fixture(settings);
  fixture.call(at::ones({4}))->complete();
  fixture.site = {"lib.py[1]", {"lib.py[1] reduce", "train.py[23] main"}, 2};
  fixture.call(at::ones({4}))->complete();
  fixture.site = {"train.py[24]", {}, 0};
  fixture.call(at::ones({4}))->complete();
  const CollectiveStep step = fixture.end();
  REQUIRE(step.rows.size() == 2);
  CHECK(step.rows[0].name == "all_reduce.post_0@train.py[23]");
  CHECK(step.rows[1].name == "all_reduce.post_0@lib.py[1]");
  CHECK(step.rows[1].vpp_stage == 2);
}

TEST_CASE("a row with more calls in a step than are kept is not applicable") {
  ReadingsFixture fixture;
  const at::Tensor tensor = at::ones({1});
  for (std::size_t i = 0; i < CollectiveReadings::kMostCalls; ++i) fixture.call(tensor)->complete();
  for (int more = 0; more < 2; ++more) fixture.call(tensor)->complete();
  const CollectiveStep step = fixture.end();
  REQUIRE(step.rows.size() == 1);
  CHECK(step.rows[0].readings.size() == CollectiveReadings::kMostCalls);
  CHECK(step.rows[0].readings.front().stats.outcome == TensorStats::Outcome::not_applicable);
}

TEST_CASE("calls at one site in several model chunks give a row for each chunk") {
  ReadingsFixture fixture;
  for (const int chunk : {0, 1, 0}) {
    fixture.site = {"train.py[24]", {}, chunk};
    fixture.call(at::ones({4}))->complete();
  }
  const CollectiveStep step = fixture.end();
  REQUIRE(step.rows.size() == 2);
  CHECK((step.rows[0].vpp_stage == 0 && step.rows[0].readings.size() == 2));
  CHECK((step.rows[1].vpp_stage == 1 && step.rows[1].readings.size() == 1));
}

TEST_CASE("the log of calls is bounded and says so") {
  CollectiveSettings settings;
  settings.log_only = true;
  ReadingsFixture fixture(settings);
  for (std::int64_t size = 1; size <= 5000; ++size) fixture.call(at::ones({size}));
  const CollectiveStep step = fixture.end();
  REQUIRE(step.log.size() == 4097);
  CHECK(step.log.back() == "further calls are not logged");
}

TEST_CASE("calls that are only logged give one line for each different call and no reading") {
  CollectiveSettings settings;
  settings.log_only = true;
  ReadingsFixture fixture(settings);
  fixture.call(at::ones({4, 2}));
  fixture.call(at::ones({4, 2}));
  fixture.call(at::ones({3}));
  const CollectiveStep step = fixture.end();
  CHECK(step.rows.empty());
  REQUIRE(step.log.size() == 2);
  CHECK(step.log[0] ==
        "all_reduce@train.py[23]: [4, 2] torch.float32 -> [4, 2] torch.float32; gloo, rank 0 of 2; "
        "train.py[23] main");
}

TEST_CASE("an unknown call site is a failure that ends reading and not the call") {
  CollectiveReadings readings({}, 1e-8, []() -> CallSite { throw std::runtime_error("no frames"); });
  readings.open();
  CHECK_FALSE(readings.on_call({"all_reduce", "gloo", 2, 0, {}, {at::ones({4})}}));
  REQUIRE(readings.fuse().failure());
  CHECK(readings.fuse().failure()->cause == "no frames");
}

TEST_CASE("a call whose arguments cannot be read is a failure that ends reading") {
  ReadingsFixture fixture;
  fixture.readings->on_failure("an argument of unknown type");
  REQUIRE(fixture.readings->fuse().failure());
  CHECK(fixture.readings->fuse().failure()->cause == "an argument of unknown type");
  CHECK_FALSE(fixture.readings->on_call({"all_reduce", "gloo", 2, 0, {}, {at::ones({4})}}));
}

}  // namespace
}  // namespace gradmon
