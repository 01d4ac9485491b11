// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmon_train/gradient_average.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>
#include <stdexcept>

#include "control/debian_version.h"
#ifdef GRADMON_C10D_OPS
#include <torch/csrc/distributed/c10d/Ops.hpp>
#endif

namespace gradmon {
namespace {

constexpr std::chrono::minutes kMeetTimeout{2};
constexpr std::chrono::minutes kCollectiveTimeout{30};

// Debian's torch 2.6 uses libuv by default but is built without it; 1.13 has no such option.
template <typename Options>
auto refuse_libuv(Options& options, int) -> decltype(options.useLibUV, void()) {
  options.useLibUV = false;
}
template <typename Options>
void refuse_libuv(Options&, long) {}

c10::intrusive_ptr<c10d::Store> meet(const Rendezvous& where) {
  c10d::TCPStoreOptions options;
  options.port = where.master_port;
  options.isServer = where.rank == 0;
  options.waitWorkers = false;
  options.timeout = kMeetTimeout;
  refuse_libuv(options, 0);
  auto store = c10::make_intrusive<c10d::TCPStore>(where.master_address, options);
  const auto key = [](int rank) { return "here/" + std::to_string(rank); };
  store->set(key(where.rank), std::vector<std::uint8_t>{1});
  for (int rank = 0; rank < where.world_size; ++rank) {
    try {
      store->wait({key(rank)}, kMeetTimeout);
    } catch (const std::exception& error) {
      throw std::runtime_error("rank " + std::to_string(rank) + " did not connect: " + error.what());
    }
  }
  return store;
}

auto device(const std::string& master_address) {
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"); interface != nullptr && *interface != '\0') {
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  }
  const bool one_host = master_address == "localhost" || master_address.compare(0, 4, "127.") == 0;
  return one_host ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                  : c10d::ProcessGroupGloo::createDefaultDevice();
}

}  // namespace

struct GradientAverage::Group {
  explicit Group(const Rendezvous& where) {
    auto options = c10d::ProcessGroupGloo::Options::create(kCollectiveTimeout);
    options->devices.push_back(device(where.master_address));
    options->threads = 1;
    const auto store = meet(where);
    auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, where.rank, where.world_size, options);
#ifdef GRADMON_C10D_OPS
    all = gloo;
#else
    all = c10::make_intrusive<c10d::ProcessGroup>(store, where.rank, where.world_size);
    all->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
#endif
  }

  void sum(const at::Tensor& tensor) const {
    std::vector<at::Tensor> tensors{tensor};
    try {
#ifdef GRADMON_C10D_OPS
      c10d::ops::allreduce(all, tensors)->wait();
#else
      all->allreduce(tensors)->wait();
#endif
    } catch (const std::exception& error) {
      throw std::runtime_error(std::string("the gradients could not be averaged, a rank is lost: ") +
                               error.what());
    }
  }

  c10::intrusive_ptr<c10d::ProcessGroup> all;
};

GradientAverage::GradientAverage(const Rendezvous& where, std::vector<at::Tensor> parameters,
                                 Participation participation)
    : parameters_(std::move(parameters)),
      participation_(participation),
      group_(std::make_unique<Group>(where)) {
  std::int64_t total = 0;
  for (const auto& parameter : parameters_) total += parameter.numel();
  flat_ = at::empty({total}, at::kFloat);
  std::int64_t begin = 0;
  for (const auto& parameter : parameters_) {
    slices_.push_back(flat_.slice(0, begin, begin + parameter.numel()).view(parameter.sizes()));
    begin += parameter.numel();
  }
}

GradientAverage::~GradientAverage() = default;

std::vector<bool> GradientAverage::present() const {
  std::vector<bool> result(parameters_.size(), true);
  if (participation_ == Participation::every_parameter) return result;
  const auto ranks = at::zeros({static_cast<std::int64_t>(parameters_.size())}, at::kLong);
  auto* counts = ranks.data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < parameters_.size(); ++i) counts[i] = parameters_[i].grad().defined() ? 1 : 0;
  group_->sum(ranks);
  for (std::size_t i = 0; i < parameters_.size(); ++i) result[i] = counts[i] != 0;
  return result;
}

void GradientAverage::average() {
  const auto present_somewhere = present();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& gradient = parameters_[i].grad();
    gradient.defined() ? slices_[i].copy_(gradient) : slices_[i].zero_();
  }
  group_->sum(flat_);
  flat_.div_(group_->all->getSize());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto& gradient = parameters_[i].mutable_grad();
    if (gradient.defined()) {
      gradient.copy_(slices_[i]);
    } else if (present_somewhere[i]) {
      gradient = slices_[i].clone();
    }
  }
}

}  // namespace gradmon
