// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gloo_group.h"

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <chrono>
#include <cstdlib>

// The dispatcher is reached by functions in torch 1.13, and by the group's own methods in 2.x.
#if TORCH_VERSION_MAJOR < 2
#include <torch/csrc/distributed/c10d/Ops.hpp>
#define GRADMON_CALL(name, ...) c10d::ops::name(group_, __VA_ARGS__)
#define GRADMON_BARRIER() c10d::ops::barrier(group_)
#else
#define GRADMON_CALL(name, ...) group_->name(__VA_ARGS__)
#define GRADMON_BARRIER() group_->barrier()
#endif

namespace gradmon {
namespace {

constexpr std::chrono::minutes kTimeout{30};
constexpr int kTag = 0;

auto device(bool one_host) {
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0')
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  return one_host ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                  : c10d::ProcessGroupGloo::createDefaultDevice();
}

c10::intrusive_ptr<c10d::ProcessGroup> made_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                  int size, bool one_host) {
  auto options = c10d::ProcessGroupGloo::Options::create(kTimeout);
  options->devices.push_back(device(one_host));
  options->threads = 1;
  auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
#if TORCH_VERSION_MAJOR < 2
  return gloo;
#else
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  return group;
#endif
}

}  // namespace

GlooGroup::GlooGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, bool one_host)
    : rank_(rank), size_(size), group_(made_group(store, rank, size, one_host)) {}

GlooGroup::~GlooGroup() = default;
GlooGroup::GlooGroup(GlooGroup&&) noexcept = default;

GlooGroup::Work GlooGroup::all_reduce(Tensors tensors) { return GRADMON_CALL(allreduce, tensors); }
GlooGroup::Work GlooGroup::broadcast(Tensors tensors) { return GRADMON_CALL(broadcast, tensors); }
GlooGroup::Work GlooGroup::all_gather(std::vector<Tensors> out, Tensors in) {
  return GRADMON_CALL(allgather, out, in);
}
GlooGroup::Work GlooGroup::scatter(Tensors out, std::vector<Tensors> in) {
  return GRADMON_CALL(scatter, out, in);
}
GlooGroup::Work GlooGroup::send(Tensors tensors, int to) { return GRADMON_CALL(send, tensors, to, kTag); }
GlooGroup::Work GlooGroup::receive(Tensors tensors, int from) {
  return GRADMON_CALL(recv, tensors, from, kTag);
}
GlooGroup::Work GlooGroup::barrier() { return GRADMON_BARRIER(); }

}  // namespace gradmon
