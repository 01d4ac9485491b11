// SPDX-License-Identifier: Apache-2.0
#include "hooks/collectives/collective_readings.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <future>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// A work that a test completes.
class PlannedWork : public c10d::Work {
 public:
  enum class Has { future, no_future };
  explicit PlannedWork(Has has) {
    if (has == Has::future)
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
using Has = PlannedWork::Has;

struct Observed {
  CallSite site{"train.py[23]", {"train.py[23] main"}, 0};
  std::shared_ptr<CollectiveReadings> readings;

  explicit Observed(CollectiveSettings settings = {})
      : readings(std::make_shared<CollectiveReadings>(settings, 1e-8, [this] { return site; })) {
    readings->open();
  }

  c10::intrusive_ptr<PlannedWork> call(const at::Tensor& tensor, Has has = Has::future) {
    auto work = c10::make_intrusive<PlannedWork>(has);
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

TEST_CASE("outputs are read when the work completes and inputs before the call") {
  CollectiveSettings settings;
  settings.inputs = true;
  Observed observed(settings);
  at::Tensor tensor = at::ones({4});
  const auto work = observed.call(tensor);
  tensor.data_ptr<float>()[0] = 7;  // as communication does: no version counter moves
  work->complete();
  const CollectiveStep step = observed.end();
  REQUIRE(step.rows.size() == 2);
  CHECK(step.rows[0].name == "all_reduce.pre_0@train.py[23]");
  CHECK(norm_of(step.rows[0].readings.at(0)) == 2);
  CHECK(step.rows[1].name == "all_reduce.post_0@train.py[23]");
  CHECK(norm_of(step.rows[1].readings.at(0)) == std::sqrt(52.0));
}

TEST_CASE("a work that completes after its step is counted and in no step's rows") {
  for (const Has has : {Has::future, Has::no_future}) {
    Observed observed;
    const auto work = observed.call(at::ones({4}), has);
    const CollectiveStep first = observed.end();
    CHECK(first.rows.empty());
    observed.readings->open();
    work->complete();
    const CollectiveStep second = observed.end();
    CHECK(second.rows.empty());
    CHECK(first.late + second.late == 1);
  }
}

TEST_CASE("a call that returns after its step is counted and holds nothing") {
  for (const Has has : {Has::future, Has::no_future}) {
    Observed observed;
    const at::Tensor tensor = at::ones({4});
    auto scope = observed.readings->on_call({"all_reduce", "gloo", 2, 0, {}, {tensor}});
    observed.readings->close();
    scope->on_return(c10::make_intrusive<PlannedWork>(has));
    scope.reset();
    CHECK(tensor.use_count() == 1);
    CHECK(observed.readings->take().late == 1);
  }
}

TEST_CASE("a work that fails is counted and has no row") {
  for (const Has has : {Has::future, Has::no_future}) {
    Observed observed;
    observed.call(at::ones({4}), has)->fail();
    const CollectiveStep step = observed.end();
    CHECK(step.rows.empty());
    CHECK(step.failed == 1);
    CHECK_FALSE(observed.readings->failure());
  }
}

TEST_CASE("a call that throws is counted as failed") {
  Observed observed;
  observed.readings->on_call({"all_reduce", "gloo", 2, 0, {}, {at::ones({4})}})->on_return({});
  CHECK(observed.end().failed == 1);
}

TEST_CASE("outputs that were written to before they could be read have no row") {
  Observed observed;
  at::Tensor tensor = at::ones({4});
  const auto work = observed.call(tensor, Has::no_future);
  work->complete();
  tensor.add_(1);
  const CollectiveStep step = observed.end();
  CHECK(step.rows.empty());
  CHECK(step.changed == 1);
}

TEST_CASE("a work without a future is read once it has completed") {
  Observed observed;
  const auto work = observed.call(at::full({4}, 3.0), Has::no_future);
  work->complete();
  const CollectiveStep step = observed.end();
  REQUIRE(step.rows.size() == 1);
  CHECK(norm_of(step.rows[0].readings.at(0)) == 6);
}

// Asks another thread, as one of Python's waits for whoever has the interpreter.
class AskingWork : public c10d::Work {
 public:
  explicit AskingWork(std::shared_ptr<CollectiveReadings> readings) : readings_(std::move(readings)) {}
  bool isCompleted() override {
    const auto answer = std::async(std::launch::async, [&] { readings_->take(); });
    answered = answer.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    return true;
  }
  bool answered = false;

 private:
  const std::shared_ptr<CollectiveReadings> readings_;
};

TEST_CASE("a work may wait for a thread that observes while it is asked whether it has completed") {
  Observed observed;
  const auto work = c10::make_intrusive<AskingWork>(observed.readings);
  observed.readings->on_call({"send", "gloo", 2, 0, {}, {at::ones({4})}})->on_return(work);
  observed.end();
  CHECK(work->answered);
}

TEST_CASE("outputs are held until the work completes and no longer") {
  for (const Has has : {Has::future, Has::no_future}) {
    Observed observed;
    const at::Tensor tensor = at::ones({4});
    const auto work = observed.call(tensor, has);
    CHECK(tensor.use_count() > 1);
    work->complete();
    if (has == Has::no_future) observed.readings->close();
    CHECK(tensor.use_count() == 1);
  }
}

TEST_CASE("a work may complete after all that observed it is gone") {
  c10::intrusive_ptr<PlannedWork> work;
  std::weak_ptr<CollectiveReadings> gone;
  {
    Observed observed;
    work = observed.call(at::ones({4}));
    observed.readings->close();
    gone = observed.readings;
  }
  CHECK_FALSE(gone.expired());
  work->complete();
  CHECK(gone.expired());
}

TEST_CASE("only call sites that match are observed in their own line or a caller's") {
  CollectiveSettings settings;
  settings.code_lines = {R"(train\.py\[23\])", "("};
  Observed observed(settings);
  observed.call(at::ones({4}))->complete();
  observed.site = {"lib.py[1]", {"lib.py[1] reduce", "train.py[23] main"}, 2};
  observed.call(at::ones({4}))->complete();
  observed.site = {"train.py[24]", {}, 0};
  observed.call(at::ones({4}))->complete();
  const CollectiveStep step = observed.end();
  REQUIRE(step.rows.size() == 2);
  CHECK(step.rows[0].name == "all_reduce.post_0@train.py[23]");
  CHECK(step.rows[1].name == "all_reduce.post_0@lib.py[1]");
  CHECK(step.rows[1].vpp_stage == 2);
}

TEST_CASE("several calls of a site in one step are readings of one row") {
  Observed observed;
  observed.call(at::ones({4}))->complete();
  observed.call(at::ones({5}))->complete();
  const CollectiveStep step = observed.end();
  REQUIRE(step.rows.size() == 1);
  CHECK(step.rows[0].readings.size() == 2);
}

TEST_CASE("where calls are only logged each sort has one line and nothing is read") {
  CollectiveSettings settings;
  settings.log_only = true;
  Observed observed(settings);
  observed.call(at::ones({4, 2}));
  observed.call(at::ones({4, 2}));
  observed.call(at::ones({3}));
  const CollectiveStep step = observed.end();
  CHECK(step.rows.empty());
  REQUIRE(step.log.size() == 2);
  CHECK(step.log[0] ==
        "all_reduce@train.py[23]: [4, 2] torch.float32 -> [4, 2] torch.float32; gloo, rank 0 of 2; "
        "train.py[23] main");
}

TEST_CASE("a call site that cannot be told ends the reading and not the call") {
  CollectiveReadings readings({}, 1e-8, []() -> CallSite { throw std::runtime_error("no frames"); });
  readings.open();
  CHECK_FALSE(readings.on_call({"all_reduce", "gloo", 2, 0, {}, {at::ones({4})}}));
  REQUIRE(readings.failure());
  CHECK(readings.failure()->cause == "no frames");
}

TEST_CASE("a call that cannot be understood is a failure that can be asked for") {
  Observed observed;
  observed.readings->on_failure("an argument of unknown type");
  REQUIRE(observed.readings->failure());
  CHECK(observed.readings->failure()->cause == "an argument of unknown type");
  CHECK_FALSE(observed.readings->on_call({"all_reduce", "gloo", 2, 0, {}, {at::ones({4})}}));
}

}  // namespace
}  // namespace gradmon
