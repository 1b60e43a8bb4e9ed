#include "atoll/net/stream_bio.h"

#include <array>

#include "atoll/base/bytes.h"
#include "atoll/base/check.h"

namespace atl::net {
namespace {

Ground& ground_of(BIO* bio) { return *static_cast<Ground*>(BIO_get_data(bio)); }

/// Says what to wait for where nothing could be moved now, which is not always what was asked for:
/// a TLS stream may have to write before it can read.
int settle(BIO* bio, const Moved& moved) {
  BIO_clear_retry_flags(bio);
  switch (moved.outcome) {
    case Moved::Outcome::kDone:
      return static_cast<int>(moved.num_bytes);
    case Moved::Outcome::kWantRead:
      BIO_set_retry_read(bio);
      return -1;
    case Moved::Outcome::kWantWrite:
      BIO_set_retry_write(bio);
      return -1;
    case Moved::Outcome::kEnded:
      break;
  }
  ground_of(bio).fault = moved.reason;
  return moved.reason.empty() ? 0 : -1;
}

int write_to(BIO* bio, const char* bytes, int size) {
  const std::array parts = {as_byte_span({bytes, static_cast<size_t>(size)})};
  return settle(bio, ground_of(bio).stream->write(parts));
}

int read_from(BIO* bio, char* bytes, int size) {
  const auto out = std::as_writable_bytes(std::span(bytes, static_cast<size_t>(size)));
  return settle(bio, ground_of(bio).stream->read(out));
}

long control(BIO* /*bio*/, int command, long /*number*/, void* /*data*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;  // Nothing is held back.
}

const BIO_METHOD* make_method() {
  BIO_METHOD* const method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "stream");
  ATOLL_CHECK(method != nullptr);
  BIO_meth_set_write(method, write_to);
  BIO_meth_set_read(method, read_from);
  BIO_meth_set_ctrl(method, control);
  return method;
}

}  // namespace

BIO* new_stream_bio(Ground& ground) {
  static const BIO_METHOD* const method = make_method();
  BIO* const bio = BIO_new(method);
  ATOLL_CHECK(bio != nullptr);
  BIO_set_data(bio, &ground);
  BIO_set_init(bio, 1);
  return bio;
}

}  // namespace atl::net
