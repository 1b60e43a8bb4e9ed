#include "atoll/net/socket_bio.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>

#include "atoll/base/check.h"

namespace atl::net {
namespace {

int socket_of(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

/// Says to try again where nothing could be moved now.
int settle(BIO* bio, ssize_t moved, void (*set_retry)(BIO*)) {
  BIO_clear_retry_flags(bio);
  if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) set_retry(bio);
  return static_cast<int>(moved);
}

int write_to(BIO* bio, const char* bytes, int size) {
  const ssize_t sent = ::send(socket_of(bio), bytes, static_cast<size_t>(size), MSG_NOSIGNAL);
  return settle(bio, sent, [](BIO* b) { BIO_set_retry_write(b); });
}

int read_from(BIO* bio, char* bytes, int size) {
  const ssize_t got = ::recv(socket_of(bio), bytes, static_cast<size_t>(size), 0);
  return settle(bio, got, [](BIO* b) { BIO_set_retry_read(b); });
}

long control(BIO* /*bio*/, int command, long /*number*/, void* /*data*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;  // Nothing is held back.
}

const BIO_METHOD* make_method() {
  BIO_METHOD* const method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
  ATOLL_CHECK(method != nullptr);
  BIO_meth_set_write(method, write_to);
  BIO_meth_set_read(method, read_from);
  BIO_meth_set_ctrl(method, control);
  return method;
}

}  // namespace

BIO* new_socket_bio(int socket) {
  static const BIO_METHOD* const method = make_method();
  BIO* const bio = BIO_new(method);
  ATOLL_CHECK(bio != nullptr);
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  BIO_set_init(bio, 1);
  return bio;
}

}  // namespace atl::net
