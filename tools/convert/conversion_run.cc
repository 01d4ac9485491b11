// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/conversion_run.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <initializer_list>
#include <memory>
#include <utility>

#include "tools/convert/conversion_progress.h"
#include "tools/convert/on_threads.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/cli/rank_ranges.h"

namespace gradmon {
namespace {

// Receives SIGINT, SIGTERM and SIGHUP without a handler: blocks them during its lifetime in this thread and
// in threads started meanwhile. Main thread.
class StopRequest {
 public:
  StopRequest();
  // Ends the process by the signal if one was received.
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Returns true if one of the signals has been received.
  bool received();

 private:
  sigset_t signals_;
  sigset_t before_;
  int signal_ = 0;
};

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

constexpr std::chrono::milliseconds kLookInterval{50};

void report(const Problems& problems, const Console& console) {
  for (const std::string& message : problems.messages()) report_error(message, console);
}

// Runs the conversion on its own thread and waits for it.
tl::expected<void, std::string> write_watched(const Conversion& conversion, const std::filesystem::path& path,
                                              ConversionMeter& meter, Problems& problems, StopRequest& stop,
                                              const Console& console) {
  auto work = std::make_shared<std::packaged_task<tl::expected<void, std::string>()>>(
      [&] { return conversion.write(path, meter, problems); });
  auto done = work->get_future();
  const OnThreads thread(1, [work] { (*work)(); });
  ConversionProgress progress(conversion.bytes, ::isatty(STDERR_FILENO) == 1 ? &console.err : nullptr);
  while (done.wait_for(kLookInterval) != std::future_status::ready) {
    if (stop.received()) meter.stop = true;
    progress.show(meter);
  }
  progress.clear();
  return done.get();
}

std::string summary(const std::vector<int>& ranks, const ConversionMeter& meter,
                    const std::filesystem::path& target, std::size_t replaced) {
  std::string text = std::to_string(meter.rows) + " rows of " + rank_ranges(ranks) + " in " +
                     printable(target.string()) + '\n';
  if (meter.repeated > 0)
    text += std::to_string(meter.repeated) +
            " rows are left out, of steps that a later start of the job has collected again\n";
  if (replaced > 0)
    text += std::to_string(replaced) + " files or directories of an earlier conversion are replaced\n";
  return text;
}

int convert(const Conversion& conversion, Problems& problems, StopRequest& stop, const Console& console) {
  auto output = UnfinishedOutput::begin(conversion.target, conversion.earlier);
  if (!output) return report_error(output.error(), console);
  ConversionMeter meter;
  const auto written = write_watched(conversion, output->path(), meter, problems, stop, console);
  if (stop.received()) return report_error("interrupted; nothing was written", console);
  report(problems, console);
  if (!written) return report_error(written.error(), console);
  if (meter.rows == 0)
    return report_error("found no rows in " + conversion.input +
                            "; expected files such as grad_reduced_0-0.csv in the directories of its ranks",
                        console);
  const auto replaced = output->finish();
  if (!replaced) return report_error(replaced.error(), console);
  console.out << summary(conversion.ranks, meter, output->target(), *replaced);
  return kExitDone;
}

}  // namespace

int run_conversion(const Conversion& conversion, Problems& problems, const Console& console) {
  StopRequest stop;  // Destroyed last: it may end the process.
  const int code = convert(conversion, problems, stop, console);
  console.out.flush();
  console.err.flush();
  return code;
}

}  // namespace gradmon
