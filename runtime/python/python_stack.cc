// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/python_stack.h"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace gradmon {
namespace {

namespace py = pybind11;

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
std::string folder_of(const char* package) {
  const std::string file = file_of(package);
  return file.substr(0, file.rfind('/') + 1);
}

// True if the path begins with one of these folders or files.
bool is_in(const std::vector<std::string>& places, const std::string& path) {
  return std::any_of(places.begin(), places.end(),
                     [&](const std::string& place) { return path.compare(0, place.size(), place) == 0; });
}

py::object caller_of(const py::object& frame) {
  return py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject*>(PyFrame_GetBack(reinterpret_cast<PyFrameObject*>(frame.ptr()))));
}

// True if the file makes communication calls and waits for them in Python (gradmon/communication/waits.py).
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
  for (; frame; frame = caller_of(frame)) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    std::string path = bytes_of(code.attr("co_filename"));
    if (!wait_is_told) wait_is_told = waits_in_python(path, libraries);
    if (frames.empty() && is_in(libraries, path)) continue;
    frames.push_back({std::move(path), PyFrame_GetLineNumber(raw), bytes_of(code.attr("co_name")), ""});
  }
  return {std::move(frames), wait_is_told.value_or(false)};
}

}  // namespace

// Finds the libraries here, not while a stack is read: an import may release the GIL and run other Python
// code. typing_extensions: its @deprecated wraps functions of torch. contextlib: torch's context managers
// call at the end of a `with`.
StackSource python_stacks() {
  const py::gil_scoped_acquire ours;
  return [libraries = std::vector{folder_of("torch"), folder_of("gradmon"), file_of("typing_extensions"),
                                  file_of("contextlib")}] { return stack_outside(libraries); };
}

}  // namespace gradmon
