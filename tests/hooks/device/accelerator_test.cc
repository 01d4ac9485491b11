// SPDX-License-Identifier: Apache-2.0
// Collecting on an accelerator that torch knows by its PrivateUse1 key, as torch_npu's. Its memory is the
// CPU's; its operators are the CPU's; copies into pinned memory come late, when the test says so.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

#include <functional>
#include <utility>

#include "hooks/device/device_fetch.h"
#include "tests/hooks/late_stream.h"
#include "tests/hooks/tiny_model.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kType, 0);

c10::Stream stream_of(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }

// The device, and the calls that a test looks at.
struct Accelerator {
  bool has_pinned_memory = true;
  bool has_double = true;
  std::vector<std::function<void()>> queue;  // copies that come late
  std::size_t done = 0;                      // of the queue
  int waits = 0;                             // of the CPU for the device
  int late_copies = 0;
  int in_fallback = 0;  // operators by the CPU's, whose own copies do not count

  void run() {
    while (done < queue.size()) queue[done++]();
  }
};
Accelerator accelerator;

// Memory of the CPU, under the name of a device.
template <c10::DeviceType type>
struct Memory final : c10::Allocator {
  c10::DataPtr allocate(std::size_t size) override {
    void* const memory = c10::alloc_cpu(size);
    return {memory, memory, &c10::free_cpu, type == kType ? kDevice : c10::Device(type)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }
};
Memory<kType> device_memory;
Memory<c10::DeviceType::CPU> pinned_memory;

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    TORCH_CHECK(accelerator.has_pinned_memory, "no pinned memory");
    return &pinned_memory;
  }
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kType;
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const noexcept override { return stream_of(0); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_of(0); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream_of(0); }
  // An event is the number of copies that were queued before it.
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    delete static_cast<std::size_t*>(*event);
    *event = new std::size_t(accelerator.queue.size());
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override {
    return *static_cast<std::size_t*>(event) <= accelerator.done;
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<std::size_t*>(event);
  }
  void synchronizeEvent(void*) const override { ++accelerator.waits; }
  void synchronizeDevice(const c10::DeviceIndex) const override { ++accelerator.waits; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &device_memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, &device_memory,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}

// The same memory as a tensor of the CPU.
at::Tensor seen_by_cpu(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  c10::Storage memory(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                      c10::DataPtr(tensor.storage().mutable_data(), c10::DeviceType::CPU));
  at::Tensor seen = at::detail::make_tensor<c10::TensorImpl>(
      std::move(memory), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  seen.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
  seen.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  return seen;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const auto copy = [from, to] { seen_by_cpu(to).copy_(seen_by_cpu(from)); };
  if (accelerator.in_fallback > 0 || !to.is_cpu()) {
    copy();
  } else if (non_blocking) {
    ++accelerator.late_copies;
    accelerator.queue.emplace_back(copy);
  } else {
    ++accelerator.waits;
    copy();
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  if (accelerator.in_fallback == 0) ++accelerator.waits;
  return seen_by_cpu(tensor).item();
}

void by_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  for (const c10::IValue& value : *stack) {
    const bool is_double = value.isTensor() && value.toTensor().defined() &&
                           value.toTensor().device() == kDevice &&
                           value.toTensor().scalar_type() == at::kDouble;
    TORCH_CHECK(accelerator.has_double || !is_double, op.operator_name(), ": no double on this device");
  }
  ++accelerator.in_fallback;
  at::native::cpu_fallback(op, stack);
  --accelerator.in_fallback;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", local_scalar);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("resize_",
               [](const at::Tensor& tensor, at::IntArrayRef sizes,
                  std::optional<at::MemoryFormat>) -> const at::Tensor& {
                 at::native::resize_impl_cpu_(tensor.unsafeGetTensorImpl(), sizes, std::nullopt);
                 return tensor;
               });
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&by_cpu>());
}

// Takes values that come later, as the writer thread does.
HookSettings gradients_and_weights() {
  HookSettings settings;
  settings.gradients = settings.weights = true;
  settings.ops = (1U << kOps) - 1;
  return settings;
}

void train_step(TinyModel& model, HookSet& hooks, std::int64_t step) {
  hooks.begin_step({step}, kInCollected);
  model.drop_grad();
  model.backward();
  hooks.before_update({});
  model.descend();
  hooks.after_update({});
  hooks.end_step();
}

// The tiny model on the device, and its twin on the CPU.
struct OnAccelerator {
  TinyModel model, twin;
  LateStream stream;
  FakeStream of_twin;

  explicit OnAccelerator(const Accelerator& like = {}) {
    static const bool registered = [] {
      c10::register_privateuse1_backend("accelerator");
      at::RegisterPrivateUse1HooksInterface(new Hooks);
      c10::SetAllocator(kType, &device_memory);
      return true;
    }();
    REQUIRE(registered);
    accelerator = like;
    for (WatchedParameter& parameter : model.parameters)
      parameter.tensor = HeldTensor(parameter.tensor->detach().to(kDevice).requires_grad_());
  }

  // The device's values of the step, against those of the CPU.
  void compare() {
    REQUIRE(stream.late);
    stream.complete();
    REQUIRE(stream.records.size() == 16);
    REQUIRE(of_twin.records.size() == 16);
    for (std::size_t i = 0; i < 16; ++i) {
      const Record &found = stream.records[i], &expected = of_twin.records[i];
      CAPTURE(stream.text(found.target), name_of(found.kind));
      CHECK(found.mask == expected.mask);
      CHECK(stream.text(found.target) == of_twin.text(expected.target));
      for (std::size_t op = 0; op < kOps; ++op) {
        CAPTURE(kStatistics[op].name);
        CHECK(std::fabs(found.values[op] - expected.values[op]) <=
              1e-6 * (1 + std::fabs(expected.values[op])));
      }
    }
    stream.records.clear();
    of_twin.records.clear();
  }
};

TEST_CASE_METHOD(OnAccelerator, "hooks wait for no accelerator, and one copy a step brings all values") {
  HookSet hooks(gradients_and_weights(), {model.parameters, {}}, stream);
  HookSet of_cpu(gradients_and_weights(), {twin.parameters, {}}, of_twin);
  for (int step = 1; step <= 3; ++step) {
    train_step(model, hooks, step);
    train_step(twin, of_cpu, step);
    CHECK(accelerator.waits == 0);
    CHECK(accelerator.late_copies == step);
    REQUIRE(stream.late);
    CHECK_FALSE(stream.late->ready());
    accelerator.run();
    CHECK(stream.late->ready());
    compare();
  }
  CHECK_FALSE(hooks.failure());
}

// ctest runs it in a process of its own, because gradmon keeps in mind what a device lacks.
TEST_CASE("an accelerator without pinned memory and double is waited for once a step", "[.without]") {
  Accelerator poor;
  poor.has_pinned_memory = poor.has_double = false;
  OnAccelerator run(poor);
  HookSet hooks(gradients_and_weights(), {run.model.parameters, {}}, run.stream);
  HookSet of_cpu(gradients_and_weights(), {run.twin.parameters, {}}, run.of_twin);
  for (int step = 1; step <= 3; ++step) {
    train_step(run.model, hooks, step);
    train_step(run.twin, of_cpu, step);
    CHECK(accelerator.waits == step);
    CHECK(accelerator.late_copies == 0);
    run.compare();
  }
  CHECK_FALSE(hooks.failure());
}

// As above.
TEST_CASE("the floats of an accelerator without double come late, too", "[.floats]") {
  Accelerator poor;
  poor.has_double = false;
  OnAccelerator run(poor);
  HookSet hooks(gradients_and_weights(), {run.model.parameters, {}}, run.stream);
  HookSet of_cpu(gradients_and_weights(), {run.twin.parameters, {}}, run.of_twin);
  train_step(run.model, hooks, 1);
  train_step(run.twin, of_cpu, 1);
  CHECK(accelerator.waits == 0);
  accelerator.run();
  run.compare();
}

}  // namespace
}  // namespace gradmon
