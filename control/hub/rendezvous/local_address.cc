// SPDX-License-Identifier: Apache-2.0
#include "control/hub/rendezvous/local_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>

#include "control/files/descriptor.h"

namespace gradmon {
namespace {

// "" for a loopback address that is refused, for a link-local IPv6 address (it needs an interface name), and
// for an address that is not IP.
std::string text_of(const sockaddr& address, Loopback loopback) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof v4);
    if (ntohl(v4.sin_addr.s_addr) >> 24U == 127 && loopback == Loopback::refused) return "";
    return inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size()) != nullptr ? text.data() : "";
  }
  if (address.sa_family != AF_INET6) return "";
  sockaddr_in6 v6{};
  std::memcpy(&v6, &address, sizeof v6);
  if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) return "";
  if (IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) && loopback == Loopback::refused) return "";
  return inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size()) != nullptr ? text.data() : "";
}

// connect() on a UDP socket sends no packet; the kernel only chooses the route.
std::string source_towards(const addrinfo& to, Loopback loopback) {
  const Descriptor fd(socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (!fd.valid() || connect(fd.get(), to.ai_addr, to.ai_addrlen) != 0) return "";
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) return "";
  return text_of(reinterpret_cast<const sockaddr&>(own), loopback);
}

std::string first_of_an_interface() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(found, freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
      if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family || (at->ifa_flags & IFF_UP) == 0)
        continue;
      if (std::string text = text_of(*at->ifa_addr, Loopback::refused); !text.empty()) return text;
    }
  }
  return "";
}

}  // namespace

std::string local_address_towards(const std::string& host, Loopback loopback) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (!host.empty() && getaddrinfo(host.c_str(), "1", &hints, &found) == 0) {
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, freeaddrinfo);
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
      if (std::string own = source_towards(*at, loopback); !own.empty()) return own;
    }
  }
  return first_of_an_interface();
}

}  // namespace gradmon
