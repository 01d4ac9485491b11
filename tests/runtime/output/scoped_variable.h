// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>
#include <time.h>

#include <optional>
#include <string>

namespace gradmon {

// Sets a variable of the process's environment; the destructor restores it. The time zone
// follows TZ.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* const was = getenv(name)) was_ = was;
    setenv(name, value, 1);
    tzset();
  }
  ~ScopedVariable() {
    if (was_) {
      setenv(name_, was_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
    tzset();
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* const name_;
  std::optional<std::string> was_;
};

}  // namespace gradmon
