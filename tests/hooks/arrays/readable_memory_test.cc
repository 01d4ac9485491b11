// SPDX-License-Identifier: Apache-2.0
#include "hooks/arrays/readable_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

// Pages of which one is taken away.
class Pages {
 public:
  explicit Pages(std::size_t count)
      : bytes_(count * kPage),
        begin_(static_cast<unsigned char*>(
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~Pages() { ::munmap(begin_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  MemoryRange range() const { return {begin_, bytes_}; }
  unsigned char* page(std::size_t i) const { return begin_ + i * kPage; }

 private:
  std::size_t bytes_;
  unsigned char* begin_;
};

TEST_CASE("memory of a program is readable, also read-only and large") {
  const std::vector<double> numbers(100'000);
  CHECK(is_readable({reinterpret_cast<const unsigned char*>(numbers.data()), numbers.size() * 8}));
  const char* constant = "constant";
  CHECK(is_readable({reinterpret_cast<const unsigned char*>(constant), 9}));
  const Pages large(16'000);
  CHECK(is_readable(large.range()));
  CHECK(is_readable({nullptr, 0}));
}

TEST_CASE("a page that is unmapped or protected is found wherever it is") {
  for (const std::size_t missing : {0U, 7U, 15U}) {
    const Pages pages(16);
    REQUIRE(is_readable(pages.range()));
    ::mprotect(pages.page(missing), kPage, PROT_NONE);
    CHECK(!is_readable(pages.range()));
    ::munmap(pages.page(missing), kPage);
    CHECK(!is_readable(pages.range()));
  }
  const Pages large(16'000);
  ::munmap(large.page(15'001), kPage);
  CHECK(!is_readable(large.range()));
}

TEST_CASE("addresses that no memory has are not readable") {
  const auto range = [](std::uintptr_t at, std::size_t bytes) {
    return MemoryRange{reinterpret_cast<const unsigned char*>(at), bytes};
  };
  CHECK(!is_readable(range(0, 4)));
  CHECK(!is_readable(range(8, 4)));
  CHECK(!is_readable(range(0xdeadbeefdead0000, 4)));
  CHECK(!is_readable(range(UINTPTR_MAX - 2, 3)));
  CHECK(!is_readable(range(UINTPTR_MAX - 2, 8)));
  const int here = 0;
  CHECK(!is_readable(range(reinterpret_cast<std::uintptr_t>(&here), SIZE_MAX / 2)));
}

}  // namespace
}  // namespace gradmon
