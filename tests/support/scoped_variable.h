// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>
#include <time.h>

#include <optional>
#include <string>

namespace gradmon {

// Sets an environment variable of this process, or unsets it for nullptr. The destructor restores it. The
// time zone follows TZ.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = getenv(name)) old_ = old;
    set(value);
  }
  ~ScopedVariable() { set(old_ ? old_->c_str() : nullptr); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void set(const char* value) {
    value != nullptr ? setenv(name_, value, 1) : unsetenv(name_);
    tzset();
  }

  const char* name_;
  std::optional<std::string> old_;
};

}  // namespace gradmon
