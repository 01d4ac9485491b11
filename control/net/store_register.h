// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "control/agree/register.h"
#include "control/net/shared_store.h"

namespace gradmon {

// The register in a store that all ranks reach: one key a revision, below one
// prefix an epoch, beside a nonce that is the epoch. It lives as long as the store
// does, no longer: an empty one that has taken its place decides nothing. One thread.
class StoreRegister : public Register {
 public:
  StoreRegister(std::shared_ptr<SharedStore> store, const std::string& epoch);

  tl::expected<Verdict, std::string> decide(const Verdict& verdict) override;
  tl::expected<void, std::string> create(const std::string& nonce) override;
  tl::expected<void, std::string> prove(const std::string& nonce) override;

 private:
  const std::shared_ptr<SharedStore> store_;
  const std::string epoch_;
  const std::string prefix_;
};

}  // namespace gradmon
