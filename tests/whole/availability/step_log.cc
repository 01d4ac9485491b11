// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/availability/step_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace gradmon {

StepLog::StepLog(const std::filesystem::path& path)
    : file_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)),
      scheduling_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {
  if (file_ < 0) throw std::runtime_error("cannot write " + path.string());
}

StepLog::~StepLog() {
  close(file_);
  if (scheduling_ >= 0) close(scheduling_);
}

std::int64_t StepLog::run_delay() const {
  std::array<char, 96> text{};
  if (pread(scheduling_, text.data(), text.size() - 1, 0) <= 0) return 0;
  char* second = nullptr;
  std::strtoll(text.data(), &second, 10);
  return std::strtoll(second, nullptr, 10) / 1000;
}

void StepLog::before_step() {
  delay_before_ = run_delay();
  called_ = monotonic_us();
}

void StepLog::after_step(StepLine line) {
  line.called_at = called_;
  line.returned_at = monotonic_us();
  line.run_delay = run_delay() - delay_before_;
  std::ostringstream text;
  text << line.step << ' ' << line.called_at << ' ' << line.returned_at << ' ' << line.run_delay << ' '
       << line.collected << ' ' << line.revision << ' ' << line.applied_step << '\n';
  write(text.str());
}

void StepLog::start(std::int64_t step) { write("start " + std::to_string(step) + '\n'); }

void StepLog::parameters(std::int64_t step, const std::string& hash) {
  write("parameters " + std::to_string(step) + ' ' + hash + '\n');
}

void StepLog::end(const TrainingEnd& end) {
  write("end " + end.parameters + ' ' + end.rand_and_umask + '\n');
}

void StepLog::write(const std::string& text) {
  if (::write(file_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
}

std::int64_t monotonic_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

StepLogContent read_step_log(const std::filesystem::path& path) {
  StepLogContent content;
  std::ifstream in(path);
  for (std::string text; std::getline(in, text);) {
    std::istringstream words(text);
    std::string first;
    words >> first;
    std::int64_t step = 0;
    if (first == "end") {
      TrainingEnd end;
      words >> end.parameters >> std::ws;
      std::getline(words, end.rand_and_umask);
      content.end = end;
    } else if (first == "start") {
      words >> content.start;
    } else if (first == "parameters") {
      words >> step >> content.parameters[step];
    } else {
      StepLine line;
      line.step = std::stoll(first);
      if (words >> line.called_at >> line.returned_at >> line.run_delay >> line.collected >> line.revision >>
          line.applied_step)
        content.lines.push_back(line);
    }
  }
  return content;
}

}  // namespace gradmon
