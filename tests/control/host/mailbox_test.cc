// SPDX-License-Identifier: Apache-2.0
#include "control/host/mailbox.h"

#include <memory>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("tasks are taken once and in order") {
  Mailbox mailbox;
  std::string done;
  mailbox.post([&] { done += "a"; });
  mailbox.post([&] { done += "b"; });
  for (const Mailbox::Task& task : mailbox.take()) task();
  CHECK(done == "ab");
  CHECK(mailbox.take().empty());
}

TEST_CASE("a closed mailbox drops its tasks and all later ones") {
  Mailbox mailbox;
  const auto held = std::make_shared<int>(0);
  mailbox.post([held] {});
  mailbox.close();
  CHECK(held.use_count() == 1);
  mailbox.post([held] {});
  CHECK(held.use_count() == 1);
  CHECK(mailbox.take().empty());
}

}  // namespace
}  // namespace gradmon
