// SPDX-License-Identifier: Apache-2.0
// Soft limits of this process, each until its object is destroyed.
#pragma once

#include <signal.h>
#include <sys/resource.h>

namespace gradmon {

class ResourceLimit {
 public:
  ResourceLimit(int resource, rlim_t soft) : resource_(resource) {
    getrlimit(resource_, &before_);
    rlimit now = before_;
    now.rlim_cur = soft;
    is_set_ = setrlimit(resource_, &now) == 0;
  }
  ~ResourceLimit() { setrlimit(resource_, &before_); }
  ResourceLimit(const ResourceLimit&) = delete;
  ResourceLimit& operator=(const ResourceLimit&) = delete;

  // False: the hard limit is lower.
  bool is_set() const { return is_set_; }

 private:
  const int resource_;
  rlimit before_{};
  bool is_set_ = false;
};

// Open descriptors over the limit stay open. While no descriptor is left, assert nothing and use no class for
// the first time: UBSan checks memory by a pipe, and takes a missing pipe for bad memory.
class DescriptorLimit : public ResourceLimit {
 public:
  explicit DescriptorLimit(rlim_t count) : ResourceLimit(RLIMIT_NOFILE, count) {}
};

// Simulates a full disk: a file cannot grow beyond `bytes`.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : limit_(RLIMIT_FSIZE, bytes) {}
  ~FileSizeLimit() { signal(SIGXFSZ, signal_before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*const signal_before_)(int) = signal(SIGXFSZ, SIG_IGN);
  const ResourceLimit limit_;
};

}  // namespace gradmon
