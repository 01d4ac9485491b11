// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// A fresh directory (0700, unpredictable name, short path: a socket's may have
// 107 bytes) below XDG_RUNTIME_DIR or /tmp, for the sockets of one job.
tl::expected<std::filesystem::path, std::string> make_socket_directory();

// Removes the sockets of an endpoint and the directory that make_socket_directory
// has made for them; what else is in it stays, and so does any other endpoint.
void remove_socket_directory(const std::string& endpoint);

}  // namespace gradmon
