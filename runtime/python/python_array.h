// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// The values of an array of any library, read by its own protocols; imports no library. In this order: a
// torch tensor; Python's buffer protocol (NumPy; also read-only arrays); DLPack, for memory that the CPU can
// read (JAX); a two-byte or one-byte view of ml_dtypes' types; asnumpy() (MindSpore) and __array__(), which
// copy. A DLPack capsule itself is an array, too.
//
// With the GIL. An Exception of the array's own methods becomes the reason; others (KeyboardInterrupt) pass
// through.
class PythonArray {
 public:
  explicit PythonArray(const pybind11::handle& array);
  ~PythonArray();
  PythonArray(const PythonArray&) = delete;
  PythonArray& operator=(const PythonArray&) = delete;

  // The tensor, which lives as long as this object, or the reason why it is missing.
  const tl::expected<at::Tensor, std::string>& tensor() const { return tensor_; }

 private:
  using Read = tl::expected<at::Tensor, std::string>;

  Read read(const pybind11::handle& array);
  Read read_buffer(const pybind11::handle& array, const char* type_name = nullptr);
  Read read_dlpack(const pybind11::handle& array);
  Read read_capsule(const pybind11::object& capsule);
  Read read_view(const pybind11::handle& array);
  Read read_copy(const pybind11::handle& array);

  void release_buffer();

  pybind11::object owner_;  // of the memory: a capsule, a view or a copy
  Py_buffer buffer_{};
  bool holds_buffer_ = false;
  Read tensor_;  // Keep last: a view of the memory.
};

}  // namespace gradmon
