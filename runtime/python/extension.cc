// SPDX-License-Identifier: Apache-2.0
// gradmon._gradmon: the C++ part of the Python package. A thin binding: one class that holds a Monitor,
// and the functions that module hooks call.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "control/agree/message.h"
#include "control/alerts/alert_report.h"
#include "control/host/mailbox.h"
#include "control/log.h"
#include "control/vocabulary.h"
#include "hooks/observe/call_site.h"
#include "hooks/observe/tensor_gradient.h"
#include "hooks/probes/collective_observer.h"
#include "hooks/probes/gradient_hooks.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/target_names.h"
#include "runtime/environment.h"
#include "runtime/launch_id.h"
#include "runtime/python/guarded.h"
#include "runtime/python/python_objects.h"
#include "runtime/session.h"

namespace gradmon {
namespace {

namespace py = pybind11;

// Flags that step() returns about the step that begins. kCheckModels: Python must check for changes of the
// watched models, and for the launch nonce. kStopWanted: Python must call stop(). kTakesScalars: scalar() has
// a use for values, of this step or of the one that has ended.
enum StepFlags : int {
  kCollects = 1,
  kWatchesForwards = 2,
  kMayEnd = 4,
  kCheckModels = 8,
  kStopWanted = 16,
  kTakesScalars = 32
};
constexpr double kStopAfterSignal = 2;  // seconds
constexpr unsigned kCheckEvery = 16;    // steps

// Throws std::invalid_argument for a kind that a program cannot pass.
Kind tapped_kind(const std::string& name) {
  std::string known;
  for (std::size_t i = 0; i < kKinds && can_be_tapped(static_cast<Kind>(i)); ++i) {
    if (kKindNames[i] == name) return static_cast<Kind>(i);
    known += std::string(i == 0 ? "" : ", ") + kKindNames[i];
  }
  throw std::invalid_argument("kind \"" + name + "\", expected one of " + known);
}

// Reading a stack calls no Python function, and so no signal handler, which might raise or wait for this
// thread. (Before Python 3.12 it may begin a garbage collection, which runs finalizers.)

// The text in UTF-8. Bytes of a file name that are not UTF-8 are kept as they are.
std::string bytes_of(const py::object& text) {
  const auto bytes =
      py::reinterpret_steal<py::bytes>(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape"));
  if (!bytes) throw py::error_already_set();
  return bytes;
}

std::string file_of(const char* module) { return bytes_of(py::module_::import(module).attr("__file__")); }

// The folder of an imported package, with a slash at the end.
std::string package_folder(const char* package) {
  const std::string file = file_of(package);
  return file.substr(0, file.rfind('/') + 1);
}

// True if the path begins with one of these folders or files.
bool is_in(const std::vector<std::string>& places, const std::string& path) {
  return std::any_of(places.begin(), places.end(),
                     [&](const std::string& place) { return path.compare(0, place.size(), place) == 0; });
}

py::object calling_frame(const py::object& frame) {
  return py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject*>(PyFrame_GetBack(reinterpret_cast<PyFrameObject*>(frame.ptr()))));
}

// True if the file makes communication calls and waits for them in Python (gradmon/_communication.py).
// Other files of torch call C++ that waits for its own calls, or functional operators, whose waits are
// reported anyway.
bool waits_in_python(const std::string& path, const std::vector<std::string>& libraries) {
  return !is_in(libraries, path) || path == libraries.front() + "distributed/distributed_c10d.py";
}

// The first library is torch.
CallStack stack_outside(const std::vector<std::string>& libraries) {
  std::vector<StackFrame> frames;
  std::optional<bool> wait_is_told;
  const py::gil_scoped_acquire ours;
  auto frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  for (; frame; frame = calling_frame(frame)) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    std::string path = bytes_of(code.attr("co_filename"));
    if (!wait_is_told) wait_is_told = waits_in_python(path, libraries);
    if (frames.empty() && is_in(libraries, path)) continue;
    frames.push_back({std::move(path), PyFrame_GetLineNumber(raw), bytes_of(code.attr("co_name")), ""});
  }
  return {std::move(frames), wait_is_told.value_or(false)};
}

// The Python call stack of the calling thread. The returned function lists the frames from the innermost one
// outside torch and gradmon outwards; empty on a thread that runs no Python. It takes the GIL and throws what
// Python throws.
//
// Finds the libraries here, not while a stack is read: an import may release the GIL and run other Python
// code. typing_extensions: its @deprecated wraps functions of torch. contextlib: torch's context managers
// call at the end of a `with`.
StackSource python_stacks() {
  const py::gil_scoped_acquire ours;
  return [libraries = std::vector{package_folder("torch"), package_folder("gradmon"),
                                  file_of("typing_extensions"), file_of("contextlib")}] {
    return stack_outside(libraries);
  };
}

// Set once Python has read it from the process group's store. Any thread.
using LaunchNonce = Published<std::optional<std::string>>;

class Core {
 public:
  // `nonce`: null without a process group, or if the environment identifies the launch.
  Core(const std::string& config, MonitorOptions options, std::shared_ptr<LaunchNonce> nonce)
      : nonce_(std::move(nonce)), monitor_(config, with_split(std::move(options), split_)) {
    awaits_nonce_ = nonce_ && !nonce_->get();
    if (session_ == nullptr) return;
    session_->set_stack_source(python_stacks());
    session_->set_interrupt_check([this] { return signal_ends_wait(); });
  }

  ~Core() { stop(); }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  void gradient_source(const std::string& source) {
    if (source == "delivered") {
      source_ = UnreducedSource::delivered;
    } else if (source == "delivered accumulated") {
      source_ = UnreducedSource::delivered_accumulated;
    } else {
      throw py::value_error("gradient_source: expected delivered or delivered accumulated, got " + source);
    }
  }

  void watch(const py::handle& model, const py::handle& listed, const py::handle& plain_scope) {
    WatchedModel chunk = described_model(model, listed, plain_scope, source_);
    note_split(chunk);
    note_replicas(chunk, model);
    {
      const py::gil_scoped_release others_run;
      logged("cannot watch the model", [&] { session_->watch(std::move(chunk)); });
    }
    raise_what_a_signal_has();
  }

  void watch_again(int chunk, const py::handle& model, const py::handle& listed,
                   const py::handle& plain_scope) {
    WatchedModel described_anew = described_model(model, listed, plain_scope, source_);
    note_split(described_anew);
    note_replicas(described_anew, model);
    const py::gil_scoped_release others_run;
    logged("cannot watch the changed model",
           [&] { session_->watch_again(chunk, std::move(described_anew)); });
  }

  int step() {
    Loop loop;
    {
      const AloneWithoutGil alone(updating_);
      loop = monitor_.step();
    }
    raise_what_a_signal_has();
    const bool check = awaits_nonce_ || ++steps_ % kCheckEvery == 0;
    return step_flags() | (loop == Loop::may_end ? kMayEnd : 0) | (check ? kCheckModels : 0);
  }
  void set_launch_nonce(const std::string& nonce) {
    if (nonce_ && !nonce.empty()) nonce_->set(nonce);
    awaits_nonce_ = false;
  }
  int rank() const noexcept { return session_ == nullptr ? 0 : session_->rank(); }
  int step_flags() const noexcept {
    const bool collects = session_ != nullptr && session_->collecting();
    const bool takes_scalars = session_ != nullptr && session_->takes_scalars();
    return (collects ? kCollects : 0) | (forward_entry::open() ? kWatchesForwards : 0) |
           (stop_wanted_ ? kStopWanted : 0) | (takes_scalars ? kTakesScalars : 0);
  }

  // An FSDP unit (`unit`: ParameterSharding::unit) has just gathered its parameters for a forward. On the
  // thread that runs the forward.
  void gathered(std::uintptr_t unit) noexcept {
    const py::gil_scoped_release others_run;
    if (Collection* const reads = collection()) reads->gathered(reinterpret_cast<const void*>(unit));
  }

  void gradient_scale(double scale, std::optional<int> chunk) noexcept {
    if (session_ != nullptr) session_->gradient_scale(scale, chunk);
  }
  void skipped() noexcept {
    if (session_ != nullptr) session_->note_skipped_update();
  }
  void note_warnings(std::vector<std::string> warnings) noexcept {
    if (session_ != nullptr) session_->note_warnings(std::move(warnings));
  }
  void note_attached(std::vector<std::string> lines) noexcept {
    if (session_ != nullptr) session_->note_attached(std::move(lines));
  }

  void before_update(const py::handle& optimizer, double gradient_scale, int reads) {
    guarded("the optimizer", [&] {
      const Collection* const reader = collection();
      PythonOptimizerState state(optimizer, gradient_scale, reader != nullptr && reader->reads_moments());
      state.set_reads(static_cast<UpdateReads>(reads));
      read_before_update(state);
    });
  }
  void after_update(const py::handle& optimizer) {
    const Collection* const reader = collection();
    if (reader == nullptr || !reader->reads_after_update()) return;
    guarded("the optimizer", [&] {
      const std::vector<at::Tensor> parameters = parameters_of(optimizer);
      read_after_update(parameters, nullptr);
    });
  }

  void before_update_of_pieces(const py::handle& optimizer, const PieceTuples& pieces) {
    read_before_update(optimizer, pieces, UpdateReads::everything);
  }
  // For pieces whose gradients and moments before_replacement() has passed.
  void before_update_of_values(const py::handle& optimizer, const PieceTuples& pieces) {
    read_before_update(optimizer, pieces, UpdateReads::values);
  }
  void before_replacement(const EarlyTuples& passed, double gradient_scale) {
    guarded("the reduced gradients", [&] {
      const EarlyGradients state(passed, gradient_scale);
      read_before_update(state);
    });
  }
  void after_update_of_pieces(const py::handle& optimizer, const PieceTuples& pieces) {
    guarded("the optimizer", [&] {
      const PythonOptimizerState state(optimizer, carried(pieces));
      read_after_update(state.parameters(), &state);
    });
  }
  void deliver_gradient(const at::Tensor& parameter, const std::optional<at::Tensor>& gradient) noexcept {
    const py::gil_scoped_release others_run;
    if (Collection* const reads = collection(); reads && gradient)
      reads->deliver_gradient(parameter, *gradient);
  }
  void note_accumulated(const at::Tensor& parameter) noexcept {
    const py::gil_scoped_release others_run;
    if (Collection* const reads = collection()) reads->deliver_gradient(parameter, at::Tensor());
  }

  void attention(const std::string& name, const at::Tensor& q, const at::Tensor& k, bool causal) noexcept {
    const py::gil_scoped_release others_run;
    monitor_.attention(name, q, k, Causal(causal));
  }
  void tap(const std::string& kind, const std::string& name, const py::handle& array, int micro_step,
           std::optional<std::string> scope) {
    guarded(("the array of tap(): " + name).c_str(), [&] {
      const auto begun = std::chrono::steady_clock::now();
      const PythonArray values(array);
      TappedValue value{tapped_kind(kind), name, values.tensor().value_or(at::Tensor()), micro_step, ""};
      if (!values.tensor()) value.why = values.tensor().error();
      if (scope) value.scope = make_scope(std::move(*scope));
      const py::gil_scoped_release others_run;
      if (Collection* const reads = collection()) reads->tap(value, begun);
    });
  }
  // Returns true if a stop() from a signal handler would remove running hooks. If so, the flags of the next
  // step request the stop.
  bool must_stop_later() noexcept {
    const bool later = PythonCodeInHooks::running();
    stop_wanted_ = stop_wanted_ || later;
    return later;
  }
  // `timeout` in seconds; negative values and NaN count as 0. nullopt: see Monitor::stop().
  void stop(std::optional<double> timeout = {}) noexcept {
    constexpr double longest = 1e9;
    stop_wanted_ = false;
    forget_python_wrappers();
    const py::gil_scoped_release others_run;
    if (!timeout) return monitor_.stop();
    const double seconds = *timeout > 0 ? std::min(*timeout, longest) : 0;
    monitor_.stop(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000)));
  }
  Monitor& monitor() noexcept { return monitor_; }

 private:
  // The names of the split parameters of one chunk. The monitor reads them only while it adds that chunk:
  // chunks may have equal names.
  using Split = std::shared_ptr<std::set<std::string>>;

  static MonitorOptions with_split(MonitorOptions options, const Split& split) {
    options.groups.split = [split](const std::string& name) { return split->count(name) != 0; };
    return options;
  }

  void note_split(const WatchedModel& chunk) {
    split_->clear();
    for (const WatchedParameter& parameter : chunk.parameters)
      if (is_split(*parameter.tensor)) split_->insert(parameter.name);
  }

  // If DistributedDataParallel wraps the first model, other ranks have the same values of wrapped models
  // only, and not of parameters that it ignores.
  void note_replicas(WatchedModel& chunk, const py::handle& model) {
    const py::object ignored = py::getattr(model, "parameters_to_ignore", py::none());
    if (!first_is_reduced_) first_is_reduced_ = !ignored.is_none();
    const bool apart = *first_is_reduced_ && ignored.is_none();
    for (WatchedParameter& parameter : chunk.parameters) {
      const bool is_ignored = !ignored.is_none() && ignored.contains(unwrapped_name(parameter.name));
      if (apart || is_ignored) parameter.replicated = false;
    }
  }

  // Logs what `call` throws. Does nothing without a session.
  template <class Call>
  void logged(const char* what, const Call& call) noexcept {
    try {
      if (session_ != nullptr) call();
    } catch (const std::exception& error) {
      log_error(std::string(what) + ": " + error.what());
    }
  }

  // Null unless this step is collected, or measured for the flight recorder.
  Collection* collection() const noexcept { return session_ == nullptr ? nullptr : session_->collection(); }

  template <class State>
  void read_before_update(const State& state) {
    const AloneWithoutGil alone(updating_);
    if (Collection* const reads = collection(); reads && !state.parameters().empty())
      reads->before_update(state.parameters(), &state);
  }
  void read_after_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) {
    const AloneWithoutGil alone(updating_);
    if (Collection* const reads = collection(); reads && !parameters.empty())
      reads->after_update(parameters, state);
  }
  void read_before_update(const py::handle& optimizer, const PieceTuples& pieces, UpdateReads reads) {
    guarded("the optimizer", [&] {
      const PythonOptimizerState state(optimizer, carried(pieces), reads);
      read_before_update(state);
    });
  }

  // Called while the training thread waits without the GIL. Runs Python's signal handlers; returns true if
  // one has raised, or called stop().
  bool signal_ends_wait() noexcept {
    const py::gil_scoped_acquire ours;
    const PythonCodeInHooks in_hooks;
    if (!raised_ && PyErr_CheckSignals() != 0) raised_.emplace();
    return raised_ || stop_wanted_;
  }

  // Raises the exception of a signal handler. Stops first: the program may catch the exception and continue,
  // in a step that is not agreed on.
  void raise_what_a_signal_has() {
    if (!raised_) return;
    const py::error_already_set raised = *raised_;
    raised_.reset();
    stop(kStopAfterSignal);
    throw raised;
  }

  const std::shared_ptr<LaunchNonce> nonce_;                       // own synchronisation
  const Split split_ = std::make_shared<std::set<std::string>>();  // keep before monitor_
  Monitor monitor_;
  MonitorBinding::Session* const session_ = MonitorBinding::session(monitor_);  // null: setup failed
  std::recursive_mutex updating_;
  unsigned steps_ = 0;
  UnreducedSource source_ = UnreducedSource::accumulator;
  std::optional<bool> first_is_reduced_;
  bool awaits_nonce_ = false;
  bool stop_wanted_ = false;                     // by a signal handler within the hooks
  std::optional<py::error_already_set> raised_;  // by a signal handler
};

// Binds a method of the monitor as one of Core.
template <typename Result, typename... Arguments>
auto of_monitor(Result (Monitor::*method)(Arguments...)) {
  return [method](Core& core, Arguments... arguments) {
    return (core.monitor().*method)(std::forward<Arguments>(arguments)...);
  };
}
template <typename Result>
auto of_monitor(Result (Monitor::*method)() const) {
  return [method](Core& core) { return (core.monitor().*method)(); };
}

std::unique_ptr<Core> make_core(const std::string& config, std::optional<int> rank,
                                std::optional<int> world_size, std::optional<std::string> endpoint,
                                const std::optional<std::string>& output_dir, std::optional<bool> dynamic,
                                std::int64_t start_iteration, int grad_acc_steps, std::vector<int> data_ranks,
                                std::vector<int> tensor_ranks, std::vector<int> pipeline_ranks,
                                std::vector<int> replica_ranks, std::optional<std::string> launch_nonce,
                                bool short_steps, std::string replica_group, bool moments_differ) {
  MonitorOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.replica_group = std::move(replica_group);
  options.endpoint = std::move(endpoint);
  if (output_dir) options.output_dir = *output_dir;
  options.dynamic = dynamic;
  options.start_iteration = start_iteration;
  options.grad_acc_steps = grad_acc_steps;
  options.short_steps = short_steps;
  options.keep_last_step = true;
  options.groups.data = std::move(data_ranks);
  options.groups.tensor = std::move(tensor_ranks);
  options.groups.pipeline = std::move(pipeline_ranks);
  options.groups.replicas = std::move(replica_ranks);
  options.groups.moments_differ = moments_differ;
  std::shared_ptr<LaunchNonce> nonce;
  if (launch_nonce) {
    nonce = std::make_shared<LaunchNonce>();
    if (!launch_nonce->empty()) nonce->set(std::move(*launch_nonce));
    options.launch_nonce = [nonce] { return nonce->get(); };
  }
  const py::gil_scoped_release others_run;
  return std::make_unique<Core>(config, std::move(options), std::move(nonce));
}

// Returns true if the environment identifies the launch. Arguments that are None come from the environment.
bool names_launch(std::optional<int> rank, std::optional<int> world_size) {
  const auto environment = read_environment(with_rank(from_process, rank, world_size));
  return !environment || environment_names_launch(*environment, from_process);
}

void entered(const py::handle& module, bool training, const py::handle& inputs, const py::dict& keywords) {
  if (!forward_entry::open()) return;
  guarded("a module's inputs", [&] {
    const ForwardTensors tensors = tensors_in_call(inputs, keywords);
    const py::gil_scoped_release others_run;
    forward_entry::entered(identity_of(module), training ? ModuleMode::training : ModuleMode::evaluation,
                           tensors);
  });
}

void left(const py::handle& module, const py::handle& output) {
  if (!forward_entry::open()) return;
  guarded("a module's output", [&] {
    const ForwardTensors tensors = tensors_in(output);
    const py::gil_scoped_release others_run;
    forward_entry::left(identity_of(module), tensors);
  });
}

// The program has added a micro batch's gradients to these parameters' itself, outside backward().
void accumulated(const py::handle& parameters) {
  guarded("gradients that the program accumulates", [&] {
    const auto leaves = parameters.cast<std::vector<at::Tensor>>();
    const py::gil_scoped_release others_run;
    note_accumulated(leaves);
  });
}

// "Metric(kind='grad_reduced', step=3)"
std::string described(const py::object& self, std::initializer_list<const char*> attributes) {
  std::string text = py::str(py::type::handle_of(self).attr("__name__"));
  const char* between = "(";
  for (const char* name : attributes) {
    text += std::string(between) + name + "=" + py::repr(self.attr(name)).cast<std::string>();
    between = ", ";
  }
  return text + ")";
}

template <CoalescedWork work>
void over(std::uint64_t number) noexcept {
  coalesced_calls_are_over(number, work);
}

template <void (*tell)(const c10::ivalue::Future&) noexcept>
void note_future(const py::handle& future) {
  // torch's own pybind11 has made it, and ours does not know those types.
  const c10::IValue value = torch::jit::toIValue(future, c10::FutureType::create(c10::AnyType::get()));
  const py::gil_scoped_release others_run;
  if (const auto known = value.toFuture()) tell(*known);
}

// Bindings for gradmon/_communication.py, which follows calls and waits of torch's Python classes.
void define_communication(py::module_& m) {
  m.def("collectives_are_observed", &collectives_are_observed);
  m.def("begin_coalescing", &begin_coalescing);
  m.def("end_coalescing", &end_coalescing);
  m.def("calls_are_unwaited", &calls_are_unwaited);
  const py::call_guard<py::gil_scoped_release> others_run;
  m.def("coalesced_calls_are_over", &over<CoalescedWork::none>, others_run);
  m.def("coalesced_calls_are_waited_for", &over<CoalescedWork::waited_for>, others_run);
  m.def("call_is_waited_for", &note_future<call_is_waited_for>);
  m.def("future_is_taken", &note_future<future_is_taken>);
  m.def("coalesced_calls_are_dropped", &over<CoalescedWork::dropped>, others_run);
  m.def("communication_is_unread", &communication_is_unread, others_run);
}

void define_metric(py::module_& m) {
  py::class_<Metric>(m, "Metric")
      .def("__repr__",
           [](const py::object& self) {
             return described(self, {"kind", "vpp_stage", "name", "step", "micro_step", "values"});
           })
      .def_readonly("kind", &Metric::kind)
      .def_readonly("vpp_stage", &Metric::vpp_stage)
      .def_readonly("name", &Metric::name)
      .def_readonly("step", &Metric::step)
      .def_readonly("micro_step", &Metric::micro_step)
      .def_property_readonly("values", [](const Metric& metric) {
        py::dict values;
        for (const auto& [title, value] : metric.values) values[py::str(title)] = value;
        return values;
      });
}

template <typename Value>
const Value& as_seen_by_python(const Value& value) {
  return value;
}
int as_seen_by_python(Rank rank) { return rank.value; }
std::uint64_t as_seen_by_python(Revision revision) { return revision.value; }
std::optional<double> as_seen_by_python(const Overhead& overhead) {
  return overhead.collected > 0 ? std::optional(overhead.share) : std::nullopt;
}
std::map<std::string, std::int64_t> as_seen_by_python(const TargetCounts& targets) {
  return {{"watched", targets.watched}, {"silent", targets.silent}, {"without_match", targets.unmatched}};
}

// A member for reading, as Python sees it.
template <typename Class, typename Owner, typename Value>
void define_member(py::class_<Class>& defined, const char* name, Value Owner::*member) {
  defined.def_property_readonly(name,
                                [member](const Class& self) { return as_seen_by_python(self.*member); });
}

void define_alert(py::module_& m) {
  py::class_<Alert> alert(m, "Alert");
  alert.def("__repr__", [](const py::object& self) { return described(self, {"rule", "step", "message"}); });
  each_alert_field([&](const char* name, std::uint32_t, auto member) {
    alert.def_property_readonly(name,
                                [member](const Alert& self) { return as_seen_by_python(self.*member); });
  });
}

void define_status(py::module_& m) {
  py::class_<RankStatus> rank(m, "RankStatus");
  rank.def("__repr__", [](const py::object& self) {
    return described(self, {"rank", "host", "pid", "state", "step", "revision", "applied_step", "step_ms",
                            "records", "dropped", "overhead", "error"});
  });
  define_member(rank, "rank", &RankStatus::rank);
  define_member(rank, "host", &RankStatus::host);
  define_member(rank, "pid", &RankStatus::pid);
  define_member(rank, "step", &RankStatus::step);
  define_member(rank, "revision", &RankStatus::revision);
  define_member(rank, "applied_step", &RankStatus::applied_step);
  define_member(rank, "state", &RankStatus::state);
  each_report_field([&](std::string name, std::uint32_t, std::uint32_t, auto member) {
    std::replace(name.begin(), name.end(), '/', '_');
    define_member(rank, name.c_str(), member);
  });
  py::class_<Status> status(m, "Status");
  status.def("__repr__", [](const py::object& self) {
    return described(self, {"mode", "state", "reason", "revision", "effective_step", "collected", "epoch",
                            "warnings", "hooks", "ranks"});
  });
  define_member(status, "revision", &Status::revision);
  define_member(status, "epoch", &Status::epoch);
  define_member(status, "mode", &Status::mode);
  define_member(status, "state", &Status::state);
  define_member(status, "reason", &Status::reason);
  define_member(status, "effective_step", &Status::effective_step);
  define_member(status, "collected", &Status::collected);
  define_member(status, "warnings", &Status::warnings);
  define_member(status, "hooks", &Status::hooks);
  define_member(status, "ranks", &Status::ranks);
}

}  // namespace
}  // namespace gradmon

PYBIND11_MODULE(_gradmon, m) {
  using namespace gradmon;
  read_python_wrappers();
  m.attr("version") = GRADMON_VERSION;
  m.attr("COLLECTS") = static_cast<int>(kCollects);
  m.attr("WATCHES_FORWARDS") = static_cast<int>(kWatchesForwards);
  m.attr("CHECK_MODELS") = static_cast<int>(kCheckModels);
  m.attr("TAKES_SCALARS") = static_cast<int>(kTakesScalars);
  m.attr("MAY_END") = static_cast<int>(kMayEnd);
  m.attr("STOP_WANTED") = static_cast<int>(kStopWanted);
  m.attr("READS_WEIGHTS") = static_cast<int>(UpdateReads::weights);
  m.attr("READS_GRADIENTS") = static_cast<int>(UpdateReads::gradients);
  m.attr("READS_ALL_LEFT_OUT") = static_cast<int>(UpdateReads::everything_left_out);
  m.def("versions_of", &versions_of);
  m.def("parameters_of", &parameters_of);
  m.def("part_identities", &part_identities);
  py::class_<FirstHook>(m, "FirstHook").def(py::init(&put_first)).def("remove", &FirstHook::take_off);
  m.def("warn_once", [](const std::string& text) { warn_once(first_line(text), text); });
  m.def("environment_names_launch", &names_launch);
  m.def("entered", &entered);
  m.def("left", &left);
  m.def("graph_module_number",
        [](const py::handle& module) { return graph_module_number(identity_of(module)); });
  m.def("take_entered_modules", &take_entered_modules);
  m.def("accumulated", &accumulated);
  m.def("begin_weight_pass", &begin_weight_pass);
  m.def("end_weight_pass", &end_weight_pass);
  m.def("observation_number", [](const std::string& name, bool gradients) {
    return observation_number(name, GradientMode(gradients));
  });
  m.def("observe", &observe_now);
  define_communication(m);
  define_metric(m);
  define_alert(m);
  define_status(m);
  const py::call_guard<py::gil_scoped_release> others_run;
  py::class_<Core>(m, "Core")
      .def(py::init(&make_core), py::arg("config"), py::kw_only(), py::arg("rank") = py::none(),
           py::arg("world_size") = py::none(), py::arg("endpoint") = py::none(),
           py::arg("output_dir") = py::none(), py::arg("dynamic") = py::none(),
           py::arg("start_iteration") = 0, py::arg("grad_acc_steps") = 1,
           py::arg("data_ranks") = std::vector<int>(), py::arg("tensor_ranks") = std::vector<int>(),
           py::arg("pipeline_ranks") = std::vector<int>(), py::arg("replica_ranks") = std::vector<int>(),
           py::arg("launch_nonce") = py::none(), py::arg("short_steps") = false,
           py::arg("replica_group") = "", py::arg("moments_differ") = false)
      .def_property_readonly("rank", &Core::rank)
      .def("watch", &Core::watch, py::arg("model"), py::arg("listed") = py::none(),
           py::arg("plain_scope") = py::none())
      .def("watch_again", &Core::watch_again, py::arg("chunk"), py::arg("model"),
           py::arg("listed") = py::none(), py::arg("plain_scope") = py::none())
      .def("gathered", &Core::gathered)
      .def("step", &Core::step)
      .def("step_flags", &Core::step_flags)
      .def("set_launch_nonce", &Core::set_launch_nonce)
      .def("gradient_scale", &Core::gradient_scale, py::arg("scale"), py::arg("chunk") = py::none())
      .def("skipped", &Core::skipped)
      .def("note_warnings", &Core::note_warnings)
      .def("note_attached", &Core::note_attached)
      .def("before_update", &Core::before_update, py::arg("optimizer"), py::arg("gradient_scale") = 1.0,
           py::arg("reads") = static_cast<int>(UpdateReads::everything))
      .def("after_update", &Core::after_update)
      .def("gradient_source", &Core::gradient_source)
      .def("before_update_of_pieces", &Core::before_update_of_pieces)
      .def("before_update_of_values", &Core::before_update_of_values)
      .def("before_replacement", &Core::before_replacement)
      .def("after_update_of_pieces", &Core::after_update_of_pieces)
      .def("deliver_gradient", &Core::deliver_gradient)
      .def("note_accumulated", &Core::note_accumulated)
      .def("scalar", of_monitor(&Monitor::scalar))
      .def("samples", of_monitor(&Monitor::samples))
      .def("expert_load", of_monitor(&Monitor::expert_load))
      .def("attention", &Core::attention)
      .def("tap", &Core::tap)
      .def("on", of_monitor(&Monitor::on))
      .def("off", of_monitor(&Monitor::off))
      .def("set", of_monitor(&Monitor::set))
      .def("metrics", of_monitor(&Monitor::metrics), others_run)
      .def("alerts", of_monitor(&Monitor::alerts), others_run)
      .def("must_stop_later", &Core::must_stop_later)
      .def("stop", &Core::stop, py::arg("timeout") = py::none())
      // Any thread. Keeps the GIL: the call is short, and a thread that releases the GIL may be ended within
      // the call when the interpreter exits.
      .def("status", of_monitor(&Monitor::status));
}
