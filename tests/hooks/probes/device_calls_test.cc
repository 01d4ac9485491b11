// SPDX-License-Identifier: Apache-2.0
// When and on which stream outputs on a device are read. The device is none: it notes what waits for what.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/version.h>

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "hooks/probes/collective_probe.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

const c10::Device kDevice(c10::DeviceType::PrivateUse1, 0);
constexpr c10::StreamId kProgram = 0, kCommunication = 1, kOther = 2;
constexpr c10::StreamId kPool = 100, kOwnPool = 200, kStreamsOfPool = 32;  // as CUDA's

c10::Stream stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }

struct Event {
  c10::StreamId on = 0;
  std::set<c10::StreamId> waited_for_by;
};

// The work that the streams have been given.
struct Streams {
  std::vector<std::unique_ptr<Event>> events;
  std::vector<c10::StreamId> kept_for;  // streams that keep a tensor's memory until they have read it
  c10::StreamId current = kProgram;
  c10::StreamId taken_of_pool = 0, taken_of_own_pool = 0;

  // True if the first stream waits for an event of the second.
  bool waits_for(c10::StreamId waiting, c10::StreamId other) const {
    return std::any_of(events.begin(), events.end(), [&](const auto& event) {
      return event->on == other && event->waited_for_by.count(waiting) != 0;
    });
  }
  bool nothing_waits() const {
    return std::all_of(events.begin(), events.end(),
                       [](const auto& event) { return event->waited_for_by.empty(); });
  }
  void begin() {  // ReadingStreams has those that it has taken
    events.clear();
    kept_for.clear();
    current = kProgram;
  }
};

Streams streams;

#if TORCH_VERSION_MAJOR > 1
#define OVERRIDE_SINCE_2_6 override
#else
#define OVERRIDE_SINCE_2_6
#endif

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr c10::DeviceType static_type = c10::DeviceType::PrivateUse1;
  c10::DeviceType type() const override { return static_type; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(streams.current); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return high_priority ? getNewStream(device, -1)
                         : stream(kPool + streams.taken_of_pool++ % kStreamsOfPool);
  }
  c10::Stream getNewStream(c10::Device, int) const OVERRIDE_SINCE_2_6 {
    return stream(kOwnPool + streams.taken_of_own_pool++ % kStreamsOfPool);
  }
  c10::Stream exchangeStream(c10::Stream next) const noexcept override {
    return stream(std::exchange(streams.current, next.id()));
  }
  void record(void** event, const c10::Stream& on, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    streams.events.push_back(std::make_unique<Event>(Event{on.id(), {}}));
    *event = streams.events.back().get();
  }
  void block(void* event, const c10::Stream& waiting) const override {
    static_cast<Event*>(event)->waited_for_by.insert(waiting.id());
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream& on) const override {
    streams.kept_for.push_back(on.id());
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// Without memory: its rows are not applicable.
at::Tensor on_device() {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, kDevice));
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      caffe2::TypeMeta::Make<float>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({4});
  return tensor;
}

at::Tensor view_of(const at::Tensor& tensor) {
  return at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(tensor.storage()), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), tensor.dtype());
}

using Future = c10::intrusive_ptr<c10::ivalue::Future>;

Future make_future(std::vector<c10::Device> devices) {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                  std::move(devices));
}

void complete(const Future& future, const at::Tensor& result) {
  const c10::StreamGuard guard(stream(kCommunication));
  future->markCompleted(c10::List<at::Tensor>({result}));
}

class WorkOf : public c10d::Work {
 public:
  explicit WorkOf(Future future) : future_(std::move(future)) {}
  Future getFuture() override { return future_; }

 private:
  const Future future_;
};

constexpr int kGroup = 0;

struct Rank {
  CallSite site{"train.py[23]", {"train.py[23] main"}, 0, true};
  std::shared_ptr<CollectiveReadings> readings =
      std::make_shared<CollectiveReadings>(CollectiveSettings{}, 1e-8, [this] { return site; });
  at::Tensor tensor = on_device();
  bool functional = false;

  Rank() {
    streams.begin();
    readings->open();
  }
  // As NCCL's: its future is complete at once.
  Future call(const char* op = "all_reduce") {
    const Future future = make_future({kDevice});
    complete(future, tensor);
    streams.kept_for.clear();
    call_with(future, op);
    return future;
  }
  void call_with(const Future& future, const char* op = "all_reduce") {
    CollectiveCall call{op, "nccl", 2, 0, {tensor}, {tensor}};
    call.group_id = &kGroup;
    call.functional = functional;
    readings->on_call(call)->on_return(c10::make_intrusive<WorkOf>(future));
  }
  CollectiveStep end() const {
    readings->close();
    return readings->take();
  }
  bool is_read_on_own_stream() const {
    const c10::StreamId own = ReadingStreams::instance().of(&kGroup, kDevice)->id();
    return own >= kOwnPool && streams.waits_for(own, kCommunication) && !streams.kept_for.empty() &&
           streams.kept_for.back() == own;
  }
};

TEST_CASE("a call is read where the program waits for it, and nothing waits for that") {
  Rank rank;
  rank.functional = GENERATE(true, false);
  const Future future = rank.call(GENERATE("all_reduce", "recv"));
  CHECK(rank.readings->has_unwaited_calls());
  rank.readings->on_waited(*make_future({}));
  if (!rank.functional) rank.readings->on_waited(view_of(rank.tensor));
  CHECK(streams.kept_for.empty());
  {
    const c10::StreamGuard guard(stream(kOther));
    SECTION("for its work") { rank.readings->on_waited(*future); }
    SECTION("for its output") {
      if (!rank.functional) return;
      rank.readings->on_waited(view_of(rank.tensor));
    }
  }
  CHECK(streams.kept_for == std::vector{kOther});
  CHECK_FALSE(rank.readings->has_unwaited_calls());
  rank.readings->on_waited(*future);
  const CollectiveStep step = rank.end();
  CHECK(step.rows.size() == 1);
  CHECK(step.untold + step.changed + step.late == 0);
  CHECK(streams.kept_for.size() == 1);
  CHECK(streams.nothing_waits());
  CHECK(rank.tensor.use_count() == 2);  // the future's
  CHECK_FALSE(rank.readings->fuse().failure());
}

TEST_CASE("a call for which no wait is told is read on a stream of gradmon's that waits for it") {
  Rank rank;
  SECTION("because C++ has made it") {
    rank.site.wait_is_told = false;
    rank.call();
    CHECK(rank.is_read_on_own_stream());
  }
  SECTION("because the program has its future") {
    const Future future = rank.call();
    rank.readings->on_future_taken(*future);
    CHECK(rank.is_read_on_own_stream());
    rank.readings->on_waited(*future);
  }
  SECTION("because the program has not waited in the step") {
    rank.call();
    CHECK(streams.nothing_waits());
  }
  const CollectiveStep step = rank.end();
  CHECK(rank.is_read_on_own_stream());
  CHECK(step.rows.size() == 1);
  CHECK(step.rows.at(0).readings.size() == 1);
  CHECK(step.untold + step.changed + step.late == 0);
  CHECK_FALSE(streams.waits_for(kProgram, kCommunication));
}

TEST_CASE("what is received and not waited for is counted, because it may depend on what comes next") {
  Rank rank;
  rank.site.wait_is_told = GENERATE(true, false);
  rank.call("recv");
  const CollectiveStep step = rank.end();
  CHECK(step.rows.empty());
  CHECK(step.untold == 1);
  CHECK(streams.nothing_waits());
}

// ctest runs it with CUDA_DEVICE_MAX_CONNECTIONS=1.
TEST_CASE("where all streams share one queue, nothing is read before the program has waited",
          "[.one-queue]") {
  Rank rank;
  rank.site.wait_is_told = GENERATE(true, false);
  rank.call();
  CHECK(rank.end().untold == 1);
  CHECK(streams.nothing_waits());
}

TEST_CASE("a call that fails and one that the program changes before it is read are counted") {
  Rank rank;
  const Future future = make_future({kDevice});
  rank.call_with(future);
  rank.tensor = on_device();
  rank.call();
  rank.tensor.unsafeGetTensorImpl()->bump_version();
  future->setError(std::make_exception_ptr(std::runtime_error("a peer is lost")));
  if (GENERATE(true, false)) rank.readings->on_waited(*future);
  const CollectiveStep step = rank.end();
  CHECK(step.rows.empty());
  CHECK(step.failed == 1);
  CHECK(step.changed == 1);
}

TEST_CASE("a buffer's other views may change between a call and the wait for it") {
  Rank rank;
  const Future future = rank.call();
  rank.tensor.unsafeGetTensorImpl()->bump_version();  // one counter for all views
  rank.readings->on_waited(*future);
  const CollectiveStep step = rank.end();
  CHECK(step.rows.size() == 1);
  CHECK(step.changed == 0);
}

TEST_CASE("a call whose result another one overwrites before the wait is counted") {
  Rank rank;
  const Future first = rank.call(), second = rank.call();
  at::Tensor other_part = view_of(rank.tensor);
  other_part.unsafeGetTensorImpl()->set_storage_offset(4);
  other_part.unsafeGetTensorImpl()->set_sizes_contiguous({4});
  const Future third = make_future({kDevice});
  complete(third, other_part);
  std::swap(rank.tensor, other_part);
  rank.call_with(third);
  for (const Future& future : {first, second, third}) rank.readings->on_waited(*future);
  const CollectiveStep step = rank.end();
  CHECK(step.changed == 1);
  CHECK(step.rows.at(0).readings.size() == 2);
}

// As Gloo's of tensors on a device: the streams of its own thread wait for the copies back.
TEST_CASE(
    "a future that knows no device is read on the thread that completes it, or where it is waited for") {
  Rank rank;
  const Future future = make_future({});
  bool is_read = true;
  SECTION("without a wait") {
    rank.site.wait_is_told = false;
    rank.call_with(future);
    std::thread([&] { complete(future, rank.tensor); }).join();
    CHECK(streams.kept_for == std::vector{kCommunication});
  }
  SECTION("with one") {
    rank.call_with(future);
    rank.tensor.unsafeGetTensorImpl()->bump_version();
    complete(future, rank.tensor);
    rank.readings->on_waited(*future);
    CHECK(streams.kept_for == std::vector{kProgram});
  }
  SECTION("but not before it is complete") {
    rank.call_with(future);
    rank.readings->on_waited(*future);
    CHECK(streams.kept_for.empty());
    complete(future, rank.tensor);
    rank.readings->on_waited(*future);
    CHECK(streams.kept_for == std::vector{kProgram});
  }
  SECTION("but not later") {
    rank.call_with(future);
    complete(future, rank.tensor);
    is_read = false;
  }
  const CollectiveStep step = rank.end();
  CHECK(step.rows.size() == (is_read ? 1 : 0));
  CHECK(step.untold == (is_read ? 0 : 1));
  CHECK(step.changed == 0);
}

TEST_CASE("each group is read on a stream of its own, as far as there are") {
  ReadingStreams lanes;
  std::vector<int> groups(ReadingStreams::kMost + 1);
  std::set<c10::StreamId> taken;
  const auto stream_of = [&](std::size_t group) { return lanes.of(&groups[group], kDevice).value().id(); };
  for (std::size_t i = 0; i < ReadingStreams::kMost; ++i) taken.insert(stream_of(i));
  CHECK(taken.size() == ReadingStreams::kMost);
  CHECK(*taken.begin() >= kOwnPool);
  const c10::StreamId oldest = stream_of(0), second = stream_of(1);
  CHECK(stream_of(ReadingStreams::kMost) == oldest);
  CHECK(stream_of(1) == second);
  CHECK(stream_of(0) == second);
  CHECK_FALSE(lanes.of(&groups[0], c10::Device(c10::DeviceType::XLA)));
}

}  // namespace
}  // namespace gradmon
