// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace gradmon {

// What `work` returns, done in a child process; none: not within `at_most`, or the
// child could not do it. For calls into a file system that may hang: such a call
// cannot be ended, not even by SIGKILL, and a thread that hangs in it would keep this
// process from ending. The child keeps none of the standard streams. One thread.
std::optional<std::string> answer_in_time(const std::function<std::string()>& work,
                                          std::chrono::milliseconds at_most);

}  // namespace gradmon
