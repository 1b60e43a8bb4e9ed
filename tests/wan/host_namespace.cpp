#include "host_namespace.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>

#include "atoll/base/error.h"

namespace atl::wan {
namespace {

constexpr size_t kMaxPacketBytes = 65536;
constexpr int kDeviceQueuePackets = 5000;
constexpr const char* kDevice = "wan0";

/// The result of a system call that must succeed.
int require(int result, const std::string& what) {
  if (result < 0) {
    throw InputError(
        fmt::format("{}: {} (an emulated network needs root, CAP_SYS_ADMIN, "
                    "CAP_NET_ADMIN and /dev/net/tun)",
                    what, std::strerror(errno)));
  }
  return result;
}

Descriptor open_file(const char* path, int flags) {
  return Descriptor(require(open(path, flags | O_CLOEXEC), path));
}

/// A request about the interface `name`.
ifreq request_for(const char* name) {
  ifreq request{};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  return request;
}

void set_ipv4(int socket_fd, unsigned long code, uint32_t address, const char* what) {
  ifreq request = request_for(kDevice);
  sockaddr_in value{};
  value.sin_family = AF_INET;
  value.sin_addr.s_addr = htonl(address);
  std::memcpy(&request.ifr_addr, &value, sizeof value);
  require(ioctl(socket_fd, code, &request), what);
}

void bring_up(int socket_fd, const char* name) {
  ifreq request = request_for(name);
  require(ioctl(socket_fd, SIOCGIFFLAGS, &request), fmt::format("flags of {}", name));
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  require(ioctl(socket_fd, SIOCSIFFLAGS, &request), fmt::format("bringing up {}", name));
}

/// In the current namespace.
Descriptor make_device(uint32_t address, int mtu) {
  Descriptor device = open_file("/dev/net/tun", O_RDWR | O_NONBLOCK);
  ifreq tun = request_for(kDevice);
  tun.ifr_flags = IFF_TUN | IFF_NO_PI;
  require(ioctl(device.get(), TUNSETIFF, &tun), "making the TUN device");
  const Descriptor control(require(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket"));
  set_ipv4(control.get(), SIOCSIFADDR, address, "setting the address");
  set_ipv4(control.get(), SIOCSIFNETMASK, 0xFFFFFF00, "setting the netmask");
  ifreq size = request_for(kDevice);
  size.ifr_mtu = mtu;
  require(ioctl(control.get(), SIOCSIFMTU, &size), "setting the MTU");
  // What is dropped here is no part of the emulation: room for 50 ms of 1 Gbit/s.
  ifreq queue = request_for(kDevice);
  queue.ifr_qlen = kDeviceQueuePackets;
  require(ioctl(control.get(), SIOCSIFTXQLEN, &queue), "setting the length of the device's queue");
  bring_up(control.get(), "lo");
  bring_up(control.get(), kDevice);
  return device;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

int Descriptor::release() { return std::exchange(fd_, -1); }

HostNamespace::HostNamespace(uint32_t address, int mtu) : address_(address) {
  constexpr const char* kOwn = "/proc/thread-self/ns/net";
  const Descriptor home = open_file(kOwn, O_RDONLY);
  require(unshare(CLONE_NEWNET), "making a network namespace");
  try {
    namespace_ = open_file(kOwn, O_RDONLY);
    device_ = make_device(address, mtu);
  } catch (...) {
    setns(home.get(), CLONE_NEWNET);
    throw;
  }
  require(setns(home.get(), CLONE_NEWNET), "going back to the own network namespace");
}

std::vector<std::byte> HostNamespace::read_packet() const {
  std::vector<std::byte> packet(kMaxPacketBytes);
  const ssize_t size = read(device_.get(), packet.data(), packet.size());
  packet.resize(size > 0 ? static_cast<size_t>(size) : 0);
  packet.shrink_to_fit();
  return packet;
}

bool HostNamespace::write_packet(std::span<const std::byte> packet) const {
  return write(device_.get(), packet.data(), packet.size()) == std::ssize(packet);
}

int HostNamespace::kill_processes() const {
  struct stat own{};
  if (fstat(namespace_.get(), &own) != 0) return 0;
  int killed = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    struct stat theirs{};
    if (stat((entry.path() / "ns/net").c_str(), &theirs) != 0) continue;  // It just ended.
    if (theirs.st_ino != own.st_ino || theirs.st_dev != own.st_dev) continue;
    if (kill(std::stoi(name), SIGKILL) == 0) ++killed;
  }
  return killed;
}

}  // namespace atl::wan
