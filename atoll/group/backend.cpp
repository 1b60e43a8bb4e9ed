// The one file that sees Gloo's headers. LibTorch has Gloo in it but not the headers that its own
// include; those of Debian's libgloo-dev serve, as only what c10d declares itself is called.
#define USE_C10D_GLOO
#include "atoll/group/backend.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "atoll/net/address.h"

namespace atl::group {
namespace {

/// Times the user's, of one collective: processes may be slow, and who is lost is known long before
/// (watch.h).
constexpr int64_t kPatience = 10;

std::shared_ptr<gloo::transport::Device> make_device(const run::ProcessPlace& place) {
  using Gloo = c10d::ProcessGroupGloo;
  // As PyTorch's users know it.
  if (const char* const interface = std::getenv("GLOO_SOCKET_IFNAME")) {
    return Gloo::createDeviceForInterface(interface);
  }
  const std::string host = net::host_towards({.host = place.address, .port = place.port});
  return Gloo::createDeviceForHostname(host.empty() ? "127.0.0.1" : host);
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_backend(const Store& store, const run::ProcessPlace& place,
                                               Duration patience) {
  const auto options = c10d::ProcessGroupGloo::Options::create(
      std::chrono::duration_cast<std::chrono::milliseconds>(kPatience * patience));
  options->devices.push_back(make_device(place));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(place.rank),
                                                     static_cast<int>(place.size), options);
}

}  // namespace atl::group
