// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/output/stop_request.h"

#include <pthread.h>
#include <time.h>

#include <initializer_list>

namespace gradmon {

StopRequest::StopRequest() {
  sigemptyset(&signals_);
  for (const int one : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    const bool ignored = ::sigaction(one, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (!ignored) sigaddset(&signals_, one);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
}

bool StopRequest::received() {
  const struct timespec at_once {};
  const int found = signal_ != 0 ? signal_ : ::sigtimedwait(&signals_, nullptr, &at_once);
  if (found > 0) signal_ = found;
  return signal_ != 0;
}

StopRequest::~StopRequest() {
  if (signal_ != 0) ::raise(signal_);  // delivered when the mask is restored
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace gradmon
