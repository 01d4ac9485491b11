// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "control/agree/plan.h"

namespace gradmon {

// Where verdicts are written once and can be read by all: whoever writes first
// wins, and every later writer reads what was written. Calls may take minutes
// (a hard NFS mount): only the disk thread makes them.
class Register {
 public:
  virtual ~Register() = default;

  // Writes the verdict unless its revision has one; returns the one that holds.
  // Durable when it returns. An error means: not known whether it was written.
  virtual tl::expected<Verdict, std::string> decide(const Verdict& verdict) = 0;

  // Makes the register and leaves a nonce in it: rank 0, once.
  virtual tl::expected<void, std::string> create(const std::string& nonce) = 0;
  // Whether this process sees the register that shows this nonce.
  virtual tl::expected<void, std::string> prove(const std::string& nonce) = 0;
};

// Of a job of one rank without a usable directory, and of tests.
class MemoryRegister : public Register {
 public:
  tl::expected<Verdict, std::string> decide(const Verdict& verdict) override {
    return verdicts_.emplace(verdict.revision.value, verdict).first->second;
  }
  tl::expected<void, std::string> create(const std::string&) override { return {}; }
  tl::expected<void, std::string> prove(const std::string&) override { return {}; }

 private:
  std::map<std::uint64_t, Verdict> verdicts_;
};

}  // namespace gradmon
