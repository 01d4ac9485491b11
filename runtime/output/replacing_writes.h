// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace gradmon {

// Numbers the writes of one file; each write replaces the whole file. If the writer thread retries a failed
// write after a later one has succeeded, the earlier one does nothing.
class ReplacingWrites {
 public:
  using Write = std::function<tl::expected<void, std::string>()>;

  // Training thread. For WriterThread::write_file().
  Write next(Write write) {
    return [number = ++last_, written = written_,
            write = std::move(write)]() -> tl::expected<void, std::string> {
      if (number < *written) return {};
      auto result = write();
      if (result) *written = number;
      return result;
    };
  }

 private:
  std::uint64_t last_ = 0;
  // The number of the newest write that has succeeded. Writer thread only.
  const std::shared_ptr<std::uint64_t> written_ = std::make_shared<std::uint64_t>(0);
};

}  // namespace gradmon
