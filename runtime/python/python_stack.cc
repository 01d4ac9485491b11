// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/python_stack.h"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>
#include <vector>

namespace gradmon {
namespace {

namespace py = pybind11;

// The folder of a package that has been imported, with a slash at its end.
std::string folder_of(const char* package) {
  const auto file = py::module_::import(package).attr("__file__").cast<std::string>();
  return file.substr(0, file.rfind('/') + 1);
}

bool is_in(const std::vector<std::string>& folders, const std::string& path) {
  return std::any_of(folders.begin(), folders.end(),
                     [&](const std::string& folder) { return path.compare(0, folder.size(), folder) == 0; });
}

py::object caller_of(const py::object& frame) {
  return py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject*>(PyFrame_GetBack(reinterpret_cast<PyFrameObject*>(frame.ptr()))));
}

std::string text_of_line(const std::string& path, std::int64_t line) {
  const auto text = py::module_::import("linecache").attr("getline")(path, line);
  return text.attr("strip")().cast<std::string>();
}

std::vector<StackFrame> stack_outside(const std::vector<std::string>& libraries, LineText text) {
  std::vector<StackFrame> frames;
  const py::gil_scoped_acquire ours;
  auto frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  for (; frame; frame = caller_of(frame)) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    auto path = code.attr("co_filename").cast<std::string>();
    if (frames.empty() && is_in(libraries, path)) continue;
    const std::int64_t line = PyFrame_GetLineNumber(raw);
    const std::string of_line = text == LineText::yes ? text_of_line(path, line) : "";
    frames.push_back({std::move(path), line, code.attr("co_name").cast<std::string>(), of_line});
  }
  return frames;
}

}  // namespace

// Where the libraries are is asked for here: an import that gives the GIL away
// must not be waited for with it.
StackSource python_stacks() {
  const py::gil_scoped_acquire ours;
  return [libraries = std::vector{folder_of("torch"), folder_of("gradmon")}](LineText text) {
    return stack_outside(libraries, text);
  };
}

}  // namespace gradmon
