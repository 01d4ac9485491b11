// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

namespace gradmon {

// Receives SIGINT, SIGTERM and SIGHUP without a handler: during its lifetime they are blocked in this thread
// and in those started meanwhile. Main thread.
class StopRequest {
 public:
  StopRequest();
  // Ends the process by the signal if one was received.
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Whether one of the signals has been received.
  bool received();

 private:
  sigset_t signals_;
  sigset_t before_;
  int signal_ = 0;
};

}  // namespace gradmon
