#pragma once
// A network namespace with one TUN device: an emulated host. Linux only; needs CAP_SYS_ADMIN and
// CAP_NET_ADMIN. The namespace has no name: it lives as long as this object or a process in it, so
// nothing is left behind however the program ends. Other processes enter it by
// `nsenter --net=/proc/PID/fd/FD`.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace atl::wan {

/// Closes the descriptor at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int release();
  int fd_;
};

class HostNamespace {
 public:
  /// Makes it with loopback up and device `wan0` at `address`/24 (IPv4, in host byte order).
  /// Throws InputError naming the call that the system refused.
  HostNamespace(uint32_t address, int mtu);
  uint32_t address() const { return address_; }
  int device() const { return device_.get(); }  // Packets in and out; does not block.
  int namespace_fd() const { return namespace_.get(); }
  /// The next packet that a process in the namespace sent; empty if there is none.
  std::vector<std::byte> read_packet() const;
  /// False when the kernel did not take it.
  bool write_packet(std::span<const std::byte> packet) const;
  /// Ends (SIGKILL) every process that still runs inside. Returns how many there were.
  int kill_processes() const;

 private:
  uint32_t address_;
  Descriptor namespace_;
  Descriptor device_;
};

}  // namespace atl::wan
