// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/python_objects.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hooks/device/cuda_totals.h"
#include "hooks/device/device_stats.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/wrapper_tensor.h"
#include "hooks/stats/readable.h"
#include "hooks/stats/tensor_stats.h"
#include "runtime/python/guarded.h"

namespace gradmon {
namespace {

namespace py = pybind11;

struct WrapperClass;
using TakeApart = Unwrapped (*)(const py::object& wrapper, const WrapperClass& of);

// The attributes that hold the parts of a class's tensors.
struct WrapperClass {
  const char* name;  // of the class or of one that it derives from; Transformer Engine's also with "Storage"
  const char* attribute;  // a tensor of another class of this name lacks it
  TakeApart take;
  const char* scale = nullptr;  // the attribute with the scale; it may be None
};

std::string class_name(const py::handle& tensor) {
  return py::type::handle_of(tensor).attr("__name__").cast<std::string>();
}

// The scopes of the DTensorSpecs seen so far, by address. Torch keeps the specs of a layer's tensors, so each
// step sees the same. With the GIL.
class KnownSpecs {
 public:
  ScopeText read_scope(const py::object& spec) {
    const auto known = known_.find(spec.ptr());
    if (known != known_.end()) return known->second.scope;
    if (known_.size() >= kMost) known_.clear();
    if (!describe_) describe_ = py::module_::import("gradmon._scopes").attr("text_of");
    ScopeText scope = make_scope(describe_(spec).cast<std::string>());
    known_.emplace(spec.ptr(), Known{spec, scope});
    return scope;
  }

 private:
  static constexpr std::size_t kMost = 4096;
  struct Known {
    py::object spec;  // prevents reuse of the address
    ScopeText scope;
  };
  std::unordered_map<const PyObject*, Known> known_;
  py::object describe_;
};

// Never destroyed: Python has ended by then.
KnownSpecs& known_specs() {
  static auto* const specs = new KnownSpecs;
  return *specs;
}

Unwrapped take_inner(const py::object& wrapper);

Unwrapped inside(const py::object& value) {
  if (!THPVariable_Check(value.ptr())) return {{}, "its " + class_name(value) + " is no tensor", {}};
  const auto tensor = value.cast<at::Tensor>();
  return is_wrapper(tensor) ? take_inner(value) : Unwrapped{tensor, "", {}};
}

// The reason why a row is missing.
struct Unreadable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The plain tensor in an attribute; undefined for None.
at::Tensor part_of(const py::object& wrapper, const char* attribute) {
  const py::object value = py::getattr(wrapper, attribute, py::none());
  if (value.is_none()) return {};
  Unwrapped part = inside(value);
  if (!part.tensor.defined()) throw Unreadable("its " + std::string(attribute) + ": " + part.why);
  if (std::string why = why_captured(part.tensor.device()); !why.empty()) throw Unreadable(why);
  return part.tensor;
}

at::Tensor needed(const py::object& wrapper, const char* attribute) {
  at::Tensor part = part_of(wrapper, attribute);
  if (!part.defined()) throw Unreadable("a " + class_name(wrapper) + " without " + attribute);
  return part;
}

bool read_flag(const py::object& wrapper, const char* attribute) {
  return py::getattr(wrapper, attribute, py::none()).is(py::bool_(true));
}

Unwrapped distributed(const py::object& wrapper, const WrapperClass& of) {
  Unwrapped inner = inside(wrapper.attr(of.attribute));
  inner.scope = known_specs().read_scope(wrapper.attr("_spec"));
  return inner;
}

// FSDPGrad: only a reduced part is the gradient; to_local() would run a collective.
Unwrapped reduced_part(const py::object& wrapper, const WrapperClass& of) {
  for (const char* part : {"unreduced", "partial"}) {
    if (!wrapper.attr(part).is_none())
      return {{}, std::string("it has a part that is ") + part + " (FSDPGrad)", {}};
  }
  return inside(wrapper.attr(of.attribute));
}

Unwrapped awaited(const py::object& wrapper, const WrapperClass& of) {
  return inside(wrapper.attr(of.attribute)());
}

// The tensor of high precision that another tensor represents.
Unwrapped held(const py::object& wrapper, const WrapperClass& of) {
  Unwrapped inner = inside(wrapper.attr(of.attribute));
  if (of.scale != nullptr) inner.scale = part_of(wrapper, of.scale);
  return inner;
}

// A tensor's representation by rows, or else its representation by columns.
Unwrapped one_of_two(const py::object& wrapper, const WrapperClass& of) {
  const py::object by_rows = wrapper.attr(of.attribute);
  return take_inner(by_rows.is_none() ? wrapper.attr("_columnwise_storage") : by_rows);
}

// --- numbers of low precision ---

std::int64_t blocks(std::int64_t count, std::int64_t block) { return (count + block - 1) / block; }

Unwrapped numbers(ScaledValues values, at::Tensor stored_scale, const std::string& dtype) {
  values.dtype = dtype_named(dtype);
  if (values.dtype == DType::unknown) throw Unreadable("numbers of type " + dtype);
  if (values.scale.dim() != 0 && (values.block_rows < 1 || values.block_columns < 1 ||
                                  values.scale.size(0) != blocks(values.rows(), values.block_rows) ||
                                  values.scale.size(1) != blocks(values.columns(), values.block_columns)))
    throw Unreadable("a scale of shape " + c10::str(stored_scale.sizes()) + " for numbers of shape " +
                     c10::str(values.codes.sizes()));
  Unwrapped inner;
  inner.values = std::make_shared<ScaledValues>(std::move(values));
  inner.scale = std::move(stored_scale);
  return inner;
}

at::Tensor as_matrix(const at::Tensor& tensor) {
  if (tensor.dim() == 2) return tensor;
  return tensor.reshape({-1, tensor.dim() == 0 ? 1 : tensor.size(-1)});
}

bool is_transposed(const at::Tensor& tensor) {
  return tensor.dim() > 1 && tensor.stride(-2) < tensor.stride(-1);
}

// "float8_e4m3fn"; "" for a type without a name.
std::string element_of(const at::Tensor& codes) {
  const std::string_view name = name_of(dtype_of(codes));
  return std::string(name.substr(name.find('.') + 1));
}

// Bytes as floats of 8 bits. Unchanged if they already have that type.
at::Tensor as_float8(const at::Tensor& codes, std::string_view type) {
  if (codes.scalar_type() != at::kByte) return codes;
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto known = static_cast<at::ScalarType>(i);
    if (c10::toString(known) == type) return codes.view(known);
  }
  throw Unreadable("this torch has no type " + std::string(type));
}

// torchao: one scale for all, or one for each index of the dimensions in which the scale is longer than 1.
Unwrapped scaled_by_axis(const py::object& wrapper, const WrapperClass& of) {
  ScaledValues values;
  const at::Tensor codes = needed(wrapper, of.attribute);
  const at::Tensor scale = needed(wrapper, of.scale);
  values.codes = as_matrix(codes);
  const bool divided = class_name(wrapper) == "Float8TrainingTensor";
  values.scaling = divided ? ScaledValues::Scaling::divided : ScaledValues::Scaling::multiplied;
  values.type = wrapper.cast<at::Tensor>().scalar_type();
  values.scale = scale;
  for (std::int64_t i = 1; i + 1 < scale.dim(); ++i) {
    if (scale.size(i) != 1 && scale.size(i - 1) != codes.size(i - 1))
      throw Unreadable("a scale of shape " + c10::str(scale.sizes()));
  }
  if (scale.dim() != 0) {
    // Int8QuantizedTrainingLinearWeight has one scale a row, in one dimension.
    values.scale = scale.dim() < codes.dim() ? scale.reshape({-1, 1}) : as_matrix(scale);
    values.block_rows = values.rows() / std::max<std::int64_t>(values.scale.size(0), 1);
    values.block_columns = values.columns() / std::max<std::int64_t>(values.scale.size(1), 1);
  }
  return numbers(std::move(values), scale, element_of(codes) + (scale.numel() == 1 ? "/tensor" : "/axis"));
}

// torchao's states of optimizers: runs of equal length share a scale.
template <ScaledValues::Code code>
Unwrapped scaled_by_run(const py::object& wrapper, const WrapperClass& of) {
  ScaledValues values;
  const at::Tensor codes = needed(wrapper, of.attribute);
  const at::Tensor scale = needed(wrapper, of.scale);
  values.code = code;
  if (code != ScaledValues::Code::number) values.table = needed(wrapper, "qmap");
  values.scale = scale.reshape({-1, 1});
  values.codes = codes.reshape({std::max<std::int64_t>(scale.numel(), 1), -1});
  values.block_columns = values.columns();
  return numbers(std::move(values), scale,
                 code == ScaledValues::Code::number  ? element_of(codes) + "/block"
                 : code == ScaledValues::Code::index ? "int8/dynamic"
                                                     : "int4/dynamic");
}

struct MicroscalingElement {
  const char* python;  // as Python prints it
  ScaledValues::Code code;
  const char* dtype;
};
constexpr MicroscalingElement kMicroscaling[] = {
    {"torch.float8_e4m3fn", ScaledValues::Code::number, "mxfp8_e4m3/32"},
    {"torch.float8_e5m2", ScaledValues::Code::number, "mxfp8_e5m2/32"},
    {"fp6_e2m3", ScaledValues::Code::e2m3, "mxfp6_e2m3/32"},
    {"fp6_e3m2", ScaledValues::Code::e3m2, "mxfp6_e3m2/32"},
    {"torch.float4_e2m1fn_x2", ScaledValues::Code::pair_of_e2m1, "mxfp4_e2m1/32"}};

// A matrix of torchao's MXTensor or NVFP4Tensor and its scales, in the order of memory.
struct Microscaled {
  ScaledValues values;
  at::Tensor scale;  // [..., rows, blocks of a row]

  Microscaled(const py::object& wrapper, const WrapperClass& of, ScaledValues::Code code,
              std::int64_t block) {
    at::Tensor codes = needed(wrapper, of.attribute);
    scale = needed(wrapper, of.scale);
    if (is_transposed(codes)) {
      codes = codes.transpose(-2, -1);
      scale = scale.transpose(-2, -1);
    }
    values.code = code;
    values.codes = as_matrix(codes.scalar_type() == at::kByte || code == ScaledValues::Code::number
                                 ? codes
                                 : codes.view(at::kByte));
    values.block_columns = block;
    if (!read_flag(wrapper, "is_swizzled_scales")) return;
    std::vector<std::int64_t> sizes(codes.sizes().begin(), codes.sizes().end() - 1);
    sizes.push_back(values.columns() / block);
    scale = from_tiles(scale, values.rows(), sizes.back()).reshape(sizes);
  }
};

Unwrapped microscaled(const py::object& wrapper, const WrapperClass& of) {
  constexpr std::int64_t kBlock = 32;
  const auto element = py::str(wrapper.attr("elem_dtype")).cast<std::string>();
  if (const auto block = wrapper.attr("block_size").cast<std::int64_t>(); block != kBlock)
    throw Unreadable("an MXTensor of blocks of " + std::to_string(block) + " elements, not 32");
  for (const MicroscalingElement& known : kMicroscaling) {
    if (element != known.python) continue;
    Microscaled found(wrapper, of, known.code, kBlock);
    found.values.scale = powers_of_two(as_matrix(found.scale));
    Unwrapped inner = numbers(std::move(found.values), powers_of_two(found.scale), known.dtype);
    inner.scale_dtype = dtype_named("torch.float8_e8m0fnu");
    return inner;
  }
  throw Unreadable("an MXTensor of " + element);
}

Unwrapped nvfp4(const py::object& wrapper, const WrapperClass& of) {
  Microscaled found(wrapper, of, ScaledValues::Code::pair_of_e2m1, 16);
  at::Tensor scale = found.scale.to(at::kFloat);
  if (const at::Tensor all = part_of(wrapper, "per_tensor_scale"); all.defined()) scale = all.mul(scale);
  found.values.scale = as_matrix(scale);
  return numbers(std::move(found.values), found.scale, "nvfp4_e2m1/16");
}

// --- Transformer Engine's ---

// The fp8 type of `_fp8_dtype`, an enumerator kFloat8E4M3 or kFloat8E5M2, by torch's name.
std::string float8_name(const py::object& wrapper) {
  const auto name = wrapper.attr("_fp8_dtype").attr("name").cast<std::string>();
  if (name == "kFloat8E4M3") return "Float8_e4m3fn";
  if (name == "kFloat8E5M2") return "Float8_e5m2";
  throw Unreadable("its _fp8_dtype is " + name);
}

Unwrapped engine_float8(const py::object& wrapper, const WrapperClass& of) {
  ScaledValues values;
  at::Tensor codes = part_of(wrapper, "_data");
  if (!codes.defined() && !read_flag(wrapper, "_transpose_invalid")) codes = part_of(wrapper, "_transpose");
  if (!codes.defined()) throw Unreadable("a Float8Tensor without data");
  const at::Tensor scale = needed(wrapper, of.scale);
  values.codes = as_matrix(as_float8(codes, float8_name(wrapper)));
  values.scale = scale.reshape({});
  const std::string dtype = element_of(values.codes) + "/tensor";
  return numbers(std::move(values), scale, dtype);
}

// Data and scales of one of the two directions in which Transformer Engine scales blocks.
struct Direction {
  bool by_rows;
  at::Tensor codes, scale;

  Direction(const py::object& wrapper) : codes(part_of(wrapper, "_rowwise_data")) {
    by_rows = codes.defined();
    if (!by_rows) codes = needed(wrapper, "_columnwise_data");
    scale = needed(wrapper, by_rows ? "_rowwise_scale_inv" : "_columnwise_scale_inv");
  }
  // The scales of that number of rows and columns of blocks, from the padded bytes in `scale`.
  at::Tensor unpadded(const py::object& wrapper, std::int64_t rows, std::int64_t columns) const {
    if (!read_flag(wrapper, "_with_gemm_swizzled_scales"))
      return scale.narrow(0, 0, rows).narrow(1, 0, columns);
    if (!by_rows) throw Unreadable("scales by columns in the order of a matrix product");
    return from_tiles(scale, rows, columns);
  }
};

Unwrapped engine_mxfp8(const py::object& wrapper, const WrapperClass&) {
  constexpr std::int64_t kBlock = 32;
  const Direction found(wrapper);
  ScaledValues values;
  values.codes = as_matrix(as_float8(found.codes, float8_name(wrapper)));
  (found.by_rows ? values.block_columns : values.block_rows) = kBlock;
  values.scale = powers_of_two(found.unpadded(wrapper, blocks(values.rows(), values.block_rows),
                                              blocks(values.columns(), values.block_columns)));
  const at::Tensor scale = values.scale;
  const bool is_e4m3 = element_of(values.codes) == "float8_e4m3fn";
  Unwrapped inner = numbers(std::move(values), scale, is_e4m3 ? "mxfp8_e4m3/32" : "mxfp8_e5m2/32");
  inner.scale_dtype = dtype_named("torch.float8_e8m0fnu");
  return inner;
}

Unwrapped engine_nvfp4(const py::object& wrapper, const WrapperClass& of) {
  constexpr std::int64_t kBlock = 16;
  ScaledValues values;
  values.code = ScaledValues::Code::pair_of_e2m1;
  // Data by columns may be rotated (a Hadamard transform): they are not the tensor's numbers.
  values.codes = as_matrix(needed(wrapper, of.attribute));
  values.block_columns = kBlock;
  const at::Tensor scale = as_float8(
      Direction(wrapper).unpadded(wrapper, values.rows(), values.columns() / kBlock), "Float8_e4m3fn");
  const at::Tensor largest =
      needed(wrapper, "_amax_rowwise").reshape({-1, 1});  // of the tensor, or of each row
  const double greatest = py::getattr(wrapper, "_nvfp4_e4m3_max", py::int_(448)).cast<double>();
  values.scale = scale.to(at::kFloat).mul(largest).mul(static_cast<float>(1.0 / (6.0 * greatest)));
  return numbers(std::move(values), scale, "nvfp4_e2m1/16");
}

// Blocks of 128 numbers of a row, or of 128 x 128.
Unwrapped engine_blocks(const py::object& wrapper, const WrapperClass&) {
  constexpr std::int64_t kBlock = 128;
  const Direction found(wrapper);
  ScaledValues values;
  const at::Tensor codes = as_float8(found.codes, float8_name(wrapper));
  values.codes = found.by_rows ? as_matrix(codes) : codes.reshape({codes.size(0), -1});
  values.block_columns = kBlock;
  if (read_flag(wrapper, "_is_2D_scaled")) values.block_rows = kBlock;
  const at::Tensor padded = values.block_rows == 1 ? found.scale.t() : found.scale;
  values.scale = padded.narrow(0, 0, blocks(values.rows(), values.block_rows))
                     .narrow(1, 0, blocks(values.columns(), kBlock));
  const at::Tensor scale = values.scale;
  const std::string dtype = element_of(values.codes) + "/block";
  return numbers(std::move(values), scale, dtype);
}

constexpr WrapperClass kClasses[] = {
    {"FSDPGrad", "reduced", reduced_part},
    {"DTensor", "_local_tensor", distributed},
    {"AsyncCollectiveTensor", "trigger_wait", awaited},
    // torchao
    {"WeightWithDynamicFloat8CastTensor", "_tensor", held, "_precomputed_scale"},
    {"TrainingWeightWrapperBaseTensor", "_data", held},
    {"Int8MixedPrecisionTrainingLinearWeight", "_data", held},
    {"BitNetTrainingLinearWeight", "_data", held},
    {"Float8TrainingTensor", "_data", scaled_by_axis, "_scale"},
    {"Int8QuantizedTrainingLinearWeight", "int_data", scaled_by_axis, "scale"},
    {"OptimState8bit", "codes", scaled_by_run<ScaledValues::Code::index>, "scale"},
    {"OptimState4bit", "codes", scaled_by_run<ScaledValues::Code::pair_of_indices>, "scale"},
    {"OptimStateFp8", "codes", scaled_by_run<ScaledValues::Code::number>, "scale"},
    {"MXTensor", "qdata", microscaled, "scale"},
    {"NVFP4Tensor", "qdata", nvfp4, "scale"},
    // Transformer Engine
    {"Float8Tensor", "_scale_inv", engine_float8, "_scale_inv"},
    {"MXFP8Tensor", "_rowwise_data", engine_mxfp8},
    {"NVFP4Tensor", "_rowwise_data", engine_nvfp4},
    {"Float8BlockwiseQTensor", "_rowwise_data", engine_blocks},
    {"IdentityTensor", "_hp_data", held},
    {"HybridQuantizedTensor", "_rowwise_storage", one_of_two},
};

const WrapperClass* class_of(const py::handle& tensor) {
  const py::object order = py::type::handle_of(tensor).attr("__mro__");
  for (const py::handle& one : order) {
    auto name = one.attr("__name__").cast<std::string>();
    constexpr std::string_view kStorage = "Storage";
    if (name.size() > kStorage.size() &&
        name.compare(name.size() - kStorage.size(), kStorage.size(), kStorage) == 0)
      name.resize(name.size() - kStorage.size());
    for (const WrapperClass& known : kClasses) {
      if (name == known.name && py::hasattr(tensor, known.attribute)) return &known;
    }
  }
  return nullptr;
}

Unwrapped take_inner(const py::object& wrapper) {
  const WrapperClass* const known = class_of(wrapper);
  if (known == nullptr) return {{}, "tensors of class " + class_name(wrapper) + " wrap others", {}};
  std::optional<PlainTorch> plain;
  if (known->take != &distributed && known->take != &awaited && known->take != &reduced_part) plain.emplace();
  Unwrapped inner = known->take(wrapper, *known);
  if (inner.values && THPVariable_Check(wrapper.ptr())) {
    const auto sizes = wrapper.cast<at::Tensor>().sizes();
    if (known->take != &distributed) inner.values->sizes.assign(sizes.begin(), sizes.end());
  }
  return inner;
}

std::optional<Unwrapped> unwrap(const at::Tensor& tensor) {
  if (Py_IsInitialized() == 0) return std::nullopt;
  const py::gil_scoped_acquire ours;
  const PythonCodeInHooks in_hooks;
  try {
    const py::object wrapper = py::cast(tensor);
    const bool own_memory = tensor.has_storage() && has_allocated_storage(tensor);
    if (own_memory && class_of(wrapper) == nullptr) return std::nullopt;
    return take_inner(wrapper);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) PyErr_SetInterrupt();  // A signal's: the program gets it.
    return Unwrapped{{}, first_line(error.what()), {}};
  } catch (const std::exception& error) {
    return Unwrapped{{}, first_line(error.what()), {}};
  }
}

}  // namespace

void read_python_wrappers() { set_unwrap(&unwrap); }

void forget_python_wrappers() { known_specs() = {}; }

}  // namespace gradmon
