// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

#include "control/agree/register.h"

namespace gradmon {

// The register in a directory that all ranks see: one file a revision, written
// aside, fsynced, published by link(2) (atomic, fails if it exists, on NFS
// too), the directory fsynced. Absence is never a proof: only a link that
// succeeds decides, and what is read back says who won. One thread.
class DirectoryRegister : public Register {
 public:
  // `directory` is $OUT/.gradmon/{epoch}. `process_id` names the files aside.
  DirectoryRegister(std::filesystem::path directory, std::string process_id);

  tl::expected<Verdict, std::string> decide(const Verdict& verdict) override;
  tl::expected<void, std::string> create(const std::string& nonce) override;
  tl::expected<void, std::string> prove(const std::string& nonce) override;

  // What holds for a revision, if this process sees it now. For history.
  static tl::expected<Verdict, std::string> read(const std::filesystem::path& entry);

 private:
  const std::filesystem::path directory_;
  const std::string process_id_;
  std::uint64_t asides_ = 0;  // A name aside is never used twice: a second link to an entry may be left.

  std::filesystem::path next_aside();
};

}  // namespace gradmon
