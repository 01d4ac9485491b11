// SPDX-License-Identifier: Apache-2.0
#include "control/net/directory_register.h"

#include <thread>
#include <vector>

#include "control/debian_version.h"
#include "tests/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

Verdict verdict(std::uint64_t revision, std::string author) {
  Verdict made;
  made.revision = Revision{revision};
  made.author = std::move(author);
  made.abort_reason = AbortReason::doubt;
  made.reason = "because";
  return made;
}

TEST_CASE("whoever writes first wins and the later writer reads it") {
  TemporaryDirectory directory;
  DirectoryRegister first(directory / "e", "a");
  DirectoryRegister second(directory / "e", "b");
  REQUIRE(first.create("nonce"));
  REQUIRE(first.decide(verdict(1, "a"))->author == "a");
  const auto held = second.decide(verdict(1, "b"));
  REQUIRE(held->author == "a");
  REQUIRE(held->reason == "because");
  REQUIRE(second.decide(verdict(2, "b"))->author == "b");
}

TEST_CASE("of many writers at once exactly one wins and all read the same") {
  TemporaryDirectory directory;
  REQUIRE(DirectoryRegister(directory / "e", "x").create("nonce"));
  constexpr int writers = 8;
  constexpr int revisions = 40;
  std::vector<std::vector<std::string>> read(writers);
  std::vector<std::thread> threads;
  for (int w = 0; w < writers; ++w) {
    threads.emplace_back([&, w] {
      DirectoryRegister own(directory / "e", "w" + std::to_string(w));
      for (int r = 1; r <= revisions; ++r) {
        const auto held = own.decide(verdict(static_cast<std::uint64_t>(r), "w" + std::to_string(w)));
        read[static_cast<std::size_t>(w)].push_back(held ? held->author : held.error());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int w = 1; w < writers; ++w) REQUIRE(read[static_cast<std::size_t>(w)] == read[0]);
}

TEST_CASE("an entry is not written again where its name aside could not be removed") {
  TemporaryDirectory directory;
  DirectoryRegister own(directory / "e", "me");
  REQUIRE(own.create("nonce"));
  REQUIRE(own.decide(verdict(1, "a"))->author == "a");
  for (const char* left : {".aside-me", ".aside-me-2", ".aside-me-3"}) {
    std::filesystem::create_hard_link(directory / "e" / "1", directory / "e" / left);
  }
  REQUIRE_FALSE(own.decide(verdict(2, "b")));
  REQUIRE(own.decide(verdict(2, "b"))->author == "b");
  REQUIRE(own.decide(verdict(1, "b"))->author == "a");
}

TEST_CASE("a commit comes back with its whole plan") {
  TemporaryDirectory directory;
  DirectoryRegister own(directory / "e", "a");
  REQUIRE(own.create("nonce"));
  auto plan = std::make_shared<Plan>();
  plan->on = true;
  plan->config_text = "{\"dynamic_on\": true}";
  plan->continues = Schedule(Step{5}, 2, 9);
  plan->file = FileIdentity{1, 2, "h"};
  plan->lookahead = 4;
  Verdict commit;
  commit.revision = Revision{3};
  commit.plan = plan;
  commit.effective = Step{77};
  const auto held = own.decide(commit);
  REQUIRE(held->commit());
  REQUIRE(held->effective == Step{77});
  REQUIRE(held->plan->config_text == plan->config_text);
  REQUIRE(held->plan->continues->first() == Step{5});
  REQUIRE(*held->plan->file == *plan->file);
  REQUIRE(held->plan->lookahead == 4);
}

TEST_CASE("a rank that sees another directory than rank 0 says so") {
  TemporaryDirectory directory;
  DirectoryRegister here(directory / "e", "a");
  DirectoryRegister elsewhere(directory / "f", "b");
  REQUIRE(here.create("nonce"));
  REQUIRE(here.prove("nonce"));
  REQUIRE_FALSE(here.prove("other"));
  REQUIRE_FALSE(elsewhere.prove("nonce"));
}

TEST_CASE("an entry that is not whole is an error and not a verdict") {
  TemporaryDirectory directory;
  DirectoryRegister own(directory / "e", "a");
  REQUIRE(own.create("nonce"));
  write_text(directory / "e/1", "garbage");
  REQUIRE_FALSE(own.decide(verdict(1, "a")));
}

}  // namespace
}  // namespace gradmon
