// SPDX-License-Identifier: Apache-2.0
// The element type in Python's buffer protocol: a format of the module `struct`, as PEP 3118 extends it.
// Pure, any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "hooks/arrays/foreign_array.h"

namespace gradmon {

// The type of a format of one number, or the reason why it cannot be read: text, a structure, an object,
// another byte order, or an `item_size` that the format does not have.
tl::expected<ElementType, std::string> type_of_format(std::string_view format, std::size_t item_size);

}  // namespace gradmon
