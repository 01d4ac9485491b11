// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace gradmon {

enum class Loopback { refused, accepted };

// The numeric address of this host that is the source of packets to `host`. If `host` cannot be resolved or
// resolves to a loopback address that is refused: the first address of an interface that is up. "": this host
// has only loopback addresses. Resolves a name, which may take long.
std::string local_address_towards(const std::string& host, Loopback loopback = Loopback::refused);

}  // namespace gradmon
