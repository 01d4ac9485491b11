// SPDX-License-Identifier: Apache-2.0
// How many file descriptors this process may still open. libzmq aborts the
// process where none is left for a socket of its own.
#pragma once

#include <cstddef>
#include <string>

namespace gradmon {

// "" or why no socket should be made: fewer than so many are free.
std::string descriptor_shortage(std::size_t to_spare);
std::size_t free_descriptors();

// The soft limit becomes the hard one, or 65,536 where that is less, for the
// whole process and the children it starts: some close every descriptor up to
// the limit. Code that still uses select() breaks on descriptors of 1024 and
// more: only for who listens on TCP.
void raise_descriptor_limit();

}  // namespace gradmon
