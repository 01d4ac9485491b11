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

// A client of PyTorch's TCPStore, which training's launcher or its rank 0 serves at
// MASTER_ADDR:MASTER_PORT. Each call makes a connection and closes it, so a server that dies later
// cannot affect this process. gradmon never serves a store.
//
// libtorch's calls have no time limit, so each call runs on a separate thread and is abandoned after
// `patience`. At most four such threads may hang at a time; they are never joined. One thread.
class TorchStore : public SharedStore {
 public:
  struct Address {
    std::string host;
    std::uint16_t port = 0;
    std::chrono::milliseconds patience{3000};
  };

  explicit TorchStore(Address address);

  tl::expected<std::string, std::string> put_once(const std::string& key, const std::string& value) override;
  tl::expected<void, std::string> put(const std::string& key, const std::string& value) override;
  tl::expected<std::int64_t, std::string> add(const std::string& key, std::int64_t number) override;
  tl::expected<std::optional<std::string>, std::string> get(const std::string& key) override;

 private:
  using Bytes = std::vector<std::uint8_t>;

  // Runs `call` with a new client on a new thread; returns its result or an error.
  template <class Answer, class Call>
  tl::expected<Answer, std::string> ask(Call call);
  // If the value of `key` is `expected` (empty: or the key is absent), sets it to `desired`. Returns the
  // value that the key then has. Never waits for a key to appear.
  tl::expected<Bytes, std::string> compare_set(const std::string& key, const Bytes& expected,
                                               const Bytes& desired);
  tl::unexpected<std::string> failed(const std::string& why) const;

  const Address address_;
  const std::shared_ptr<std::atomic<int>> under_way_;  // number of running calls; shared with their threads
};

}  // namespace gradmon
