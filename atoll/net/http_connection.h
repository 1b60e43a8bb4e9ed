#pragma once
// One client's connection, as the server's loop reads requests from it and a thread answers them:
// never both at once. Private to atoll/net.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "atoll/base/clock.h"
#include "atoll/net/byte_stream.h"
#include "atoll/net/door.h"
#include "atoll/net/http_message.h"
#include "atoll/net/http_server.h"

namespace atl::net {

class HttpConnection {
 public:
  /// `clock` and `stopping` must outlive it; once `stopping` is true its writes end.
  HttpConnection(std::unique_ptr<ByteStream> stream, std::shared_ptr<Door::Place> place,
                 HttpReader::Limits limits, const Clock& clock, const std::atomic<bool>& stopping);

  int descriptor() const { return stream_->descriptor(); }
  HttpReader& reader() { return reader_; }
  /// On the loop: reads what is there, until a request is whole or bad.
  struct Progress {
    enum class Outcome : uint8_t {
      kWantRead,
      kWantWrite,
      kMore,  // There may be more at once; others have their turn first.
      kRequest,
      kBad,
      kEnded,
    };
    Outcome outcome;
  };
  Progress read_on();
  /// On the loop: reads what comes and forgets it. False: nothing more will come.
  bool drain();

  /// On an answering thread: asks the handler, and sends its reply. Whether the connection may have
  /// another request.
  bool answer(const HttpHandler& handler, bool may_keep, Duration deadline, bool takes_bodies);
  /// That a bad request is not understood, if it can be said at once.
  void refuse();
  /// Nothing follows.
  void say_goodbye();
  /// Whether its other end closed it, or the server ends.
  bool has_gone() const;

 private:
  HttpRequest request_of(HttpMessage message) const;
  bool send_reply(const HttpReply& reply, const HttpMessage& asked, bool keeps_alive,
                  Duration deadline);
  bool send_stream(const HttpReply& reply, std::string head, bool is_chunked, Duration deadline);
  bool write_all(std::string_view bytes, Time deadline);

  const std::unique_ptr<ByteStream> stream_;
  const std::shared_ptr<Door::Place> place_;
  const std::string host_;
  HttpReader reader_;
  bool is_greeted_ = false;
  size_t num_drained_ = 0;
  const Clock& clock_;
  const std::atomic<bool>& stopping_;
};

}  // namespace atl::net
