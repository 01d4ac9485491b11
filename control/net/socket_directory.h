// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// A fresh directory (0700, unpredictable name, short path: a socket's may have
// 107 bytes) below XDG_RUNTIME_DIR or /tmp, for the sockets of one job.
tl::expected<std::filesystem::path, std::string> make_socket_directory();

// Removes the directory of an endpoint that make_socket_directory has made;
// any other endpoint is left alone.
void remove_socket_directory(const std::string& endpoint);

}  // namespace gradmon
