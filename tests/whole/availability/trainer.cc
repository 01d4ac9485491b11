// SPDX-License-Identifier: Apache-2.0
// availability-trainer: the training under test. A tiny linear model, steps of a
// given length, ranks coupled by a StepBarrier. The parameters depend only on the first
// and the last step. SIGUSR1: the process executes itself and goes on with the next step.
#include <torch/types.h>  // Keep first: the headers below need it and do not include it.

#include <ATen/Parallel.h>
#include <gradmon/monitor.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <thread>

#include "runtime/session.h"
#include "tests/whole/availability/step_files.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;

volatile sig_atomic_t exec_requested = 0;

struct Options {
  std::string config;
  std::string step_log;
  std::string barrier;        // file of the StepBarrier; "": not coupled
  std::string limit;          // "nofile", "as" or "nproc": lowered before the Monitor is created; "": none
  std::int64_t headroom = 0;  // descriptors, blocks of 4 MiB, or processes that the limit leaves
  std::int64_t start = 0;     // the first step
  std::int64_t steps = INT64_MAX;
  std::chrono::milliseconds step_time{15};
  bool monitored = true;
  bool every_hash = false;  // log the hash of the parameters after every step
};

Options parse(int argc, char** argv) {
  std::map<std::string, std::string> given;
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  const auto text = [&](const char* name) { return given.count(name) == 0 ? std::string() : given[name]; };
  const auto number = [&](const char* name, std::int64_t otherwise) {
    return given.count(name) == 0 ? otherwise : std::stoll(given[name]);
  };
  Options options;
  options.config = text("--config");
  options.step_log = text("--step-log");
  options.barrier = text("--barrier");
  options.limit = text("--limit");
  options.headroom = number("--headroom", 0);
  options.start = number("--start-iteration", 0);
  options.steps = number("--steps", INT64_MAX);
  options.step_time = std::chrono::milliseconds(number("--step-ms", 15));
  options.monitored = number("--bare", 0) == 0;
  options.every_hash = number("--every-hash", 0) != 0;
  return options;
}

int own_rank() {
  const char* rank = std::getenv("RANK");
  return rank == nullptr ? 0 : std::atoi(rank);
}

std::string hash_of(const torch::nn::Linear& model) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const at::Tensor& parameter : model->parameters()) {
    const at::Tensor values = parameter.detach().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(values.data_ptr());
    for (std::size_t i = 0; i < values.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211U;
  }
  return std::to_string(hash);
}

// gradmon must leave rand() and the umask to the training program. Call once, at the end.
std::string rand_and_umask() {
  std::string text;
  for (int i = 0; i < 4; ++i) text += std::to_string(std::rand()) + ' ';  // NOLINT
  const mode_t mask = umask(0);
  umask(mask);
  return text + std::to_string(mask);
}

std::int64_t open_descriptors() {
  std::int64_t highest = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    highest = std::max<std::int64_t>(highest, std::stoll(entry.path().filename()));
  return highest + 1;
}

std::int64_t address_space() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// The threads of this user, as RLIMIT_NPROC counts them. Only the test has processes of this user.
std::int64_t own_processes() {
  std::int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::error_code error;
    struct stat status {};
    if (!std::isdigit(entry.path().filename().native()[0])) continue;
    if (stat(entry.path().c_str(), &status) != 0 || status.st_uid != geteuid()) continue;
    for (std::filesystem::directory_iterator task(entry.path() / "task", error), end; task != end;
         task.increment(error))
      ++count;
  }
  return count;
}

// Grows the heap by 8 MiB of free memory, so that training itself can go on under any
// limit that is set later.
void reserve_heap() {
  constexpr std::size_t kPiece = 16'384;
  constexpr int kPieces = 512;
  std::vector<void*> pieces;
  for (int i = 0; i < kPieces; ++i) pieces.push_back(std::malloc(kPiece));
  for (void* piece : pieces) std::free(piece);
}

void lower_limit(const Options& options) {
  if (options.limit.empty()) return;
  reserve_heap();
  const bool of_memory = options.limit == "as";
  const bool of_descriptors = options.limit == "nofile";
  constexpr std::int64_t kPiece = std::int64_t{4} << 20U;
  const std::int64_t used = of_memory        ? address_space()
                            : of_descriptors ? open_descriptors()
                                             : own_processes();
  const auto most = static_cast<rlim_t>(used + options.headroom * (of_memory ? kPiece : 1));
  const rlimit limit{most, most};
  if (setrlimit(of_memory ? RLIMIT_AS : of_descriptors ? RLIMIT_NOFILE : RLIMIT_NPROC, &limit) != 0)
    std::abort();
}

class Training {
 public:
  explicit Training(const Options& options)
      : options_(options),
        rank_(own_rank()),
        model_(4, 2),
        optimizer_(model_->parameters(), 0.01),
        log_(options.step_log) {
    if (!options.barrier.empty()) barrier_.emplace(options.barrier, StepBarrier::Open::existing, 0);
  }

  // The step to go on with after an exec; unset: training has ended.
  std::optional<std::int64_t> run() {
    for (int i = 0; i < 3; ++i) forward_and_backward(options_.start);  // torch allocates at first use
    optimizer_.zero_grad();
    lower_limit(options_);
    if (options_.monitored) {
      MonitorOptions monitor;
      monitor.start_iteration = options_.start;
      monitor_.emplace(options_.config, monitor);
      monitor_->watch(*model_, optimizer_);
    }
    log_.start(options_.start);
    if (barrier_) barrier_->join(rank_, options_.start);
    for (std::int64_t step = options_.start;; ++step) {
      const auto deadline = Clock::now() + options_.step_time;
      one_step(step);
      if (step - options_.start + 1 >= options_.steps || (barrier_ && barrier_->last() <= step)) break;
      if (exec_requested != 0) return step + 1;
      if (!barrier_ || barrier_->newest_step() <= step) std::this_thread::sleep_until(deadline);
    }
    if (barrier_) barrier_->leave(rank_);
    monitor_.reset();
    log_.end({hash_of(model_), rand_and_umask()});
    return {};
  }

 private:
  void forward_and_backward(std::int64_t step) {
    const at::Tensor input =
        torch::arange(8, torch::kFloat).reshape({2, 4}).add_(static_cast<double>(step % 17)).mul_(0.01);
    model_->forward(input).square().mean().backward();
  }

  void one_step(std::int64_t step) {
    optimizer_.zero_grad();
    forward_and_backward(step);
    if (barrier_) barrier_->wait(rank_, step);
    StepLine line;
    line.step = step;
    const auto* const session = monitor_ ? MonitorBinding::session(*monitor_) : nullptr;
    line.collected = session && session->collecting();  // null: it could not be set up
    log_.before_step();
    if (monitor_) {
      monitor_->step(optimizer_);
    } else {
      optimizer_.step();
    }
    const Status status = monitor_ ? monitor_->status() : Status{};
    const auto own = std::find_if(status.ranks.begin(), status.ranks.end(),
                                  [&](const RankStatus& rank) { return rank.rank.value == rank_; });
    if (own != status.ranks.end()) {
      line.revision = own->revision.value;
      line.applied_step = own->applied_step;
    }
    log_.after_step(line);
    if (options_.every_hash) log_.parameters(step, hash_of(model_));
  }

  const Options options_;
  const int rank_;
  torch::nn::Linear model_;
  torch::optim::SGD optimizer_;
  StepLog log_;
  std::optional<StepBarrier> barrier_;
  std::optional<Monitor> monitor_;
};

// With the same arguments, and the step to go on with.
[[noreturn]] void exec_again(char** argv, std::int64_t step) {
  std::vector<std::string> words;
  for (char** word = argv; *word != nullptr; ++word) words.emplace_back(*word);
  words.insert(words.end(), {"--start-iteration", std::to_string(step)});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv("/proc/self/exe", arguments.data());
  std::abort();
}

}  // namespace
}  // namespace gradmon

int main(int argc, char** argv) {
  signal(SIGUSR1, [](int) { gradmon::exec_requested = 1; });
  at::set_num_threads(1);
  torch::manual_seed(7);
  try {
    std::optional<gradmon::Training> training(gradmon::parse(argc, argv));
    // The Monitor stays open: a process that executes itself does not close it first.
    if (const auto step = training->run()) gradmon::exec_again(argv, *step);
  } catch (const std::exception& error) {
    std::cerr << "availability-trainer: " << error.what() << std::endl;
    return 1;
  }
  return 0;
}
