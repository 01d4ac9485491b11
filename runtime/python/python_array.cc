// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/python_objects.h"

#include <torch/csrc/autograd/python_variable.h>

#include <optional>
#include <utility>

#include "hooks/probes/foreign_array.h"
#include "hooks/probes/tap_probe.h"
#include "hooks/rows/hook_fuse.h"

namespace gradmon {
namespace {

namespace py = pybind11;

std::string python_type_name(const py::handle& object) { return Py_TYPE(object.ptr())->tp_name; }

// Runs `body`; an Exception of Python becomes its result.
template <typename Body>
tl::expected<at::Tensor, std::string> reasoned(Body&& body) {
  try {
    return body();
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    return tl::unexpected(first_line(error.what()));
  } catch (const std::exception& error) {
    return tl::unexpected(first_line(error.what()));
  }
}

tl::expected<at::Tensor, std::string> checked_tensor(const ForeignArray& array) {
  const auto memory = memory_of(array);
  if (!memory) return tl::unexpected(memory.error());
  if (!is_readable(*memory)) return tl::unexpected<std::string>("its data are in memory that cannot be read");
  return tensor_of(array);
}

// `dtype.name` ("bfloat16"); "" if the array has none.
std::string read_dtype_name(const py::handle& array) {
  const py::object dtype = py::getattr(array, "dtype", py::none());
  const py::object name = py::getattr(dtype, "name", py::none());
  return py::isinstance<py::str>(name) ? name.cast<std::string>() : "";
}

// True for a NumPy array with a type of ml_dtypes, because these types have no buffer of their own.
bool has_type_without_buffer(const py::handle& array) {
  const std::string name = read_dtype_name(array);
  const bool of_ml_dtypes = name == "bfloat16" || name.rfind("float8_", 0) == 0;
  return of_ml_dtypes && element_type_of(name) && py::hasattr(array, "view") &&
         py::object(py::getattr(array.attr("dtype"), "isnative", py::none())).is(py::bool_(true));
}

bool has_host_memory(const py::handle& array) {
  if (!py::hasattr(array, "__dlpack_device__")) return true;
  const py::object device = array.attr("__dlpack_device__")();
  return is_host_memory(py::int_(device[py::int_(0)]).cast<int>());  // an IntEnum, or anything
}

// The capsule of version 1, which read-only arrays need, or of the version before it.
py::object dlpack_capsule(const py::handle& array) {
  try {
    return array.attr("__dlpack__")(py::arg("max_version") = py::make_tuple(1, 0));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return array.attr("__dlpack__")();
}

}  // namespace

PythonArray::PythonArray(const py::handle& array) : tensor_(reasoned([&] { return read(array); })) {}

PythonArray::~PythonArray() {
  tensor_ = Read(at::Tensor());
  release_buffer();
}

void PythonArray::release_buffer() {
  if (std::exchange(holds_buffer_, false)) PyBuffer_Release(&buffer_);
}

PythonArray::Read PythonArray::read(const py::handle& array) {
  if (THPVariable_Check(array.ptr())) return array.cast<at::Tensor>();
  if (PyCapsule_CheckExact(array.ptr())) return read_capsule(py::reinterpret_borrow<py::object>(array));
  std::optional<Read> found;  // or the first reason
  const auto attempt = [&](bool possible, auto&& body) {
    if (!possible || (found && *found)) return;
    Read tried = reasoned(body);
    if (!found || tried) found = std::move(tried);
  };
  attempt(PyObject_CheckBuffer(array.ptr()) != 0, [&] { return read_buffer(array); });
  attempt(py::hasattr(array, "__dlpack__"), [&] { return read_dlpack(array); });
  attempt(has_type_without_buffer(array), [&] { return read_view(array); });
  attempt(py::hasattr(array, "asnumpy") || py::hasattr(array, "__array__"), [&] { return read_copy(array); });
  if (found) return std::move(*found);
  return tl::unexpected(python_type_name(array) +
                        " is no array: it has no buffer, __dlpack__(), asnumpy() or __array__()");
}

// `type_name`: the type of the elements, in place of the buffer's; of the same size.
PythonArray::Read PythonArray::read_buffer(const py::handle& array, const char* type_name) {
  release_buffer();
  if (PyObject_GetBuffer(array.ptr(), &buffer_, PyBUF_RECORDS_RO) != 0) throw py::error_already_set();
  holds_buffer_ = true;
  const auto item = static_cast<std::size_t>(buffer_.itemsize);
  auto type = type_of_format(buffer_.format != nullptr ? buffer_.format : "B", item);
  if (type_name != nullptr) type = element_type_of(type_name).value();
  if (!type) return tl::unexpected(type.error());
  const auto dimensions = static_cast<std::size_t>(buffer_.ndim);
  if (buffer_.suboffsets != nullptr || buffer_.ndim < 0 || dimensions > kMostDimensions ||
      (dimensions > 0 && buffer_.shape == nullptr))
    return tl::unexpected<std::string>("its buffer has no shape, or has indirections");
  ForeignArray found;
  found.data = buffer_.buf;
  found.type = *type;
  found.sizes.assign(buffer_.shape, buffer_.shape + dimensions);
  if (buffer_.strides != nullptr) {
    found.strides.assign(buffer_.strides, buffer_.strides + dimensions);
  } else if (!set_contiguous_strides(found)) {  // ctypes
    return tl::unexpected<std::string>("a shape that reaches beyond all memory");
  }
  return checked_tensor(found);
}

PythonArray::Read PythonArray::read_dlpack(const py::handle& array) {
  if (!has_host_memory(array)) return tl::unexpected<std::string>("its memory is on a device");
  return read_capsule(dlpack_capsule(array));
}

// Does not take over the capsule: its own destructor calls the deleter. So no function that a capsule names
// is called.
PythonArray::Read PythonArray::read_capsule(const py::object& capsule) {
  if (PyCapsule_CheckExact(capsule.ptr()) == 0)
    return tl::unexpected("__dlpack__() gave " + python_type_name(capsule) + ", no capsule");
  const char* name = PyCapsule_GetName(capsule.ptr());
  const std::string shown = name != nullptr ? name : "";
  const bool versioned = shown == "dltensor_versioned";
  if (!versioned && shown != "dltensor")
    return tl::unexpected("a capsule named \"" + shown + "\", expected \"dltensor\"");
  const auto found = array_behind(PyCapsule_GetPointer(capsule.ptr(), name),
                                  versioned ? DlVersion::since_1 : DlVersion::before_1);
  if (!found) return tl::unexpected(found.error());
  owner_ = capsule;
  return checked_tensor(*found);
}

PythonArray::Read PythonArray::read_view(const py::handle& array) {
  const std::string name = read_dtype_name(array);
  const std::size_t bytes = size_of(element_type_of(name).value());
  owner_ = array.attr("view")(bytes == 2 ? "uint16" : "uint8");
  return read_buffer(owner_, name.c_str());
}

PythonArray::Read PythonArray::read_copy(const py::handle& array) {
  const char* method = py::hasattr(array, "asnumpy") ? "asnumpy" : "__array__";
  owner_ = array.attr(method)();
  if (PyObject_CheckBuffer(owner_.ptr()) == 0)
    return tl::unexpected(std::string(method) + "() gave " + python_type_name(owner_) + ", no buffer");
  const Read plain = reasoned([&] { return read_buffer(owner_); });
  if (plain || !has_type_without_buffer(owner_)) return plain;
  const py::object copy = owner_;
  return read_view(copy);
}

}  // namespace gradmon
