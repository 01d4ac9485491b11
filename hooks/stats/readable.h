// SPDX-License-Identifier: Apache-2.0
// Checks if the memory of a tensor can be read, and if it was written.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradmon {

// True if the storage contains all elements, and for a tensor without elements or without its own storage
// (sparse). FSDP frees the storage of a parameter and keeps its shape; the storage of a subclass that wraps
// another tensor (DTensor) has a size but no memory.
bool has_allocated_storage(const at::Tensor& tensor);

// The version counter, which changes with each write; empty for a tensor without one (undefined, inference).
std::optional<std::uint32_t> version_of(const at::Tensor& tensor);

// "" for a tensor whose elements lie in one array. Otherwise a description: a nested tensor, or a tensor that
// represents others within torch.func (vmap, grad).
std::string why_no_array(const at::Tensor& tensor);

inline constexpr const char* kWithoutMemory = "meta tensor, or its storage is freed";

// "" for a strided floating-point tensor with elements in allocated memory; otherwise the reason why it is
// not such a tensor, beginning with `subject`.
std::string why_unreadable(const at::Tensor& tensor, std::string_view subject = "the tensor");

}  // namespace gradmon
