// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gradient_average.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <stdexcept>

#include "tests/support/gloo_group.h"
#include "tests/support/refuse_libuv.h"

namespace gradmon {
namespace {

constexpr std::chrono::minutes kMeetTimeout{2};

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

bool on_one_host(const std::string& master_address) {
  return master_address == "localhost" || master_address.compare(0, 4, "127.") == 0;
}

}  // namespace

GradientAverage::GradientAverage(const Rendezvous& where, std::vector<at::Tensor> parameters,
                                 Participation participation)
    : parameters_(std::move(parameters)),
      participation_(participation),
      group_(std::make_unique<GlooGroup>(meet(where), where.rank, where.world_size,
                                         on_one_host(where.master_address))) {
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

void GradientAverage::sum(const at::Tensor& tensor) const {
  try {
    group_->all_reduce({tensor})->wait();
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("the gradients could not be averaged, a rank is lost: ") +
                             error.what());
  }
}

std::vector<bool> GradientAverage::present() const {
  std::vector<bool> result(parameters_.size(), true);
  if (participation_ == Participation::every_parameter) return result;
  const auto ranks = at::zeros({static_cast<std::int64_t>(parameters_.size())}, at::kLong);
  auto* counts = ranks.data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < parameters_.size(); ++i) counts[i] = parameters_[i].grad().defined() ? 1 : 0;
  sum(ranks);
  for (std::size_t i = 0; i < parameters_.size(); ++i) result[i] = counts[i] != 0;
  return result;
}

void GradientAverage::average() {
  const auto present_somewhere = present();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& gradient = parameters_[i].grad();
    gradient.defined() ? slices_[i].copy_(gradient) : slices_[i].zero_();
  }
  sum(flat_);
  flat_.div_(group_->size());
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
