// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace gradmon {

// Whether query i of an attention sees the keys 0 … i alone.
enum class Causal : bool { no, yes };

}  // namespace gradmon
