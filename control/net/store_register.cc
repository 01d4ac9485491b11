// SPDX-License-Identifier: Apache-2.0
#include "control/net/store_register.h"

#include <utility>

#include "control/net/messages.h"

namespace gradmon {
namespace {

constexpr char kNonce[] = "nonce";

}  // namespace

StoreRegister::StoreRegister(std::shared_ptr<SharedStore> store, const std::string& epoch)
    : store_(std::move(store)), epoch_(epoch), prefix_("gradmon/" + epoch + "/") {}

tl::expected<Verdict, std::string> StoreRegister::decide(const Verdict& verdict) {
  const auto nonce = store_->get(prefix_ + kNonce);
  if (!nonce) return tl::unexpected(nonce.error());
  if (*nonce != epoch_)
    return tl::unexpected(
        std::string("the store is another one than that which rank 0 made the register in"));
  const std::string key = prefix_ + std::to_string(verdict.revision.value);
  auto held = store_->put_once(key, encode(verdict));
  if (!held) return tl::unexpected(held.error());
  auto read = decode_verdict(*held);
  if (!read) return tl::unexpected(key + " in the store: " + read.error());
  return read;
}

tl::expected<void, std::string> StoreRegister::create(const std::string& nonce) {
  const auto held = store_->put_once(prefix_ + kNonce, nonce);
  if (!held) return tl::unexpected(held.error());
  if (*held != nonce) return tl::unexpected(prefix_ + kNonce + " in the store is somebody else's");
  return {};
}

tl::expected<void, std::string> StoreRegister::prove(const std::string& nonce) {
  const auto found = store_->get(prefix_ + kNonce);
  if (!found) return tl::unexpected(found.error());
  if (*found != nonce) return tl::unexpected(std::string("does not see rank 0's register in the store"));
  return {};
}

}  // namespace gradmon
