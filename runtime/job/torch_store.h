// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "control/link/shared_store.h"

namespace gradmon {

// PyTorch's own store, which training's launcher or its rank 0 serves at
// MASTER_ADDR:MASTER_PORT: a client's connection of our own, made for each
// call and gone after it: a server that dies later reaches nothing here. gradmon
// never serves one itself.
//
// libtorch's calls know no time limit, so each is made on a thread of its own
// and given up after `patience`; at most four such threads hang at a time, and
// nobody waits for them, at exit neither. One thread.
class TorchStore : public SharedStore {
 public:
  struct Place {
    std::string host;
    std::uint16_t port = 0;
    std::chrono::milliseconds patience{3000};
  };

  explicit TorchStore(Place place);

  tl::expected<std::string, std::string> put_once(const std::string& key, const std::string& value) override;
  tl::expected<void, std::string> put(const std::string& key, const std::string& value) override;
  tl::expected<std::int64_t, std::string> add(const std::string& key, std::int64_t number) override;
  tl::expected<std::optional<std::string>, std::string> get(const std::string& key) override;

 private:
  using Bytes = std::vector<std::uint8_t>;

  // What `call` returns for the store, on a thread of its own.
  template <class Answer, class Call>
  tl::expected<Answer, std::string> ask(Call call);
  // The value under `key` afterwards: `desired` where it was `expected` (empty:
  // or absent), else what it is. Never waits for a key to come.
  tl::expected<Bytes, std::string> compare_set(const std::string& key, const Bytes& expected,
                                               const Bytes& desired);
  tl::unexpected<std::string> failed(const std::string& why) const;

  const Place place_;
  const std::shared_ptr<std::atomic<int>> under_way_;  // shared with the calls that hang
};

}  // namespace gradmon
