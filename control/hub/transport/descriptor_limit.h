// SPDX-License-Identifier: Apache-2.0
// The number of file descriptors that this process may still open. libzmq aborts the process if none is left
// for a socket of its own.
#pragma once

#include <cstddef>
#include <string>

namespace gradmon {

// "" or, if fewer than `to_spare` descriptors are free, an error that says so.
std::string descriptor_shortage(std::size_t to_spare);
std::size_t free_descriptors();

// Raises the soft limit to the hard limit, at most to 65,536. Only for a process that listens on TCP, because
// the limit holds for the whole process and its children: some programs close every descriptor up to the
// limit, and code that uses select() breaks on descriptors from 1024 on.
void raise_descriptor_limit();

}  // namespace gradmon
