#include "atoll/net/http_connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <exception>
#include <span>
#include <utility>

#include "atoll/net/socket_address.h"

namespace atl::net {
namespace {

using Outcome = HttpConnection::Progress::Outcome;

constexpr Duration kPollInterval = std::chrono::milliseconds(50);  // For being stopped.
constexpr int kReadsAtOnce = 16;  // Then the loop's other connections have their turn.
constexpr size_t kMaxDrainedBytes = size_t{256} << 10;

class StreamSink final : public HttpSink {
 public:
  explicit StreamSink(std::function<bool(std::string_view)> write) : write_(std::move(write)) {}
  bool write(std::string_view part) override {
    // An empty chunk would end the body.
    is_read_ = is_read_ && (part.empty() || write_(part));
    return is_read_;
  }
  bool is_read() const { return is_read_; }

 private:
  const std::function<bool(std::string_view)> write_;
  bool is_read_ = true;
};

}  // namespace

HttpConnection::HttpConnection(std::unique_ptr<ByteStream> stream,
                               std::shared_ptr<Door::Place> place, HttpReader::Limits limits,
                               const Clock& clock, const std::atomic<bool>& stopping)
    : stream_(std::move(stream)),
      place_(std::move(place)),
      host_(remote_address(stream_->descriptor()).address().host),
      reader_(limits),
      clock_(clock),
      stopping_(stopping) {}

HttpConnection::Progress HttpConnection::read_on() {
  std::array<std::byte, 16384> buffer;
  for (int i = 0; i < kReadsAtOnce; ++i) {
    if (reader_.state() == HttpReader::State::kWhole) return {Outcome::kRequest};
    if (reader_.state() == HttpReader::State::kBad) return {Outcome::kBad};
    const Moved moved = is_greeted_ ? stream_->read(buffer) : stream_->greet();
    if (moved.outcome == Moved::Outcome::kEnded) return {Outcome::kEnded};
    if (moved.outcome == Moved::Outcome::kWantRead) return {Outcome::kWantRead};
    if (moved.outcome == Moved::Outcome::kWantWrite) return {Outcome::kWantWrite};
    if (!is_greeted_) {
      is_greeted_ = true;
      continue;
    }
    reader_.add({reinterpret_cast<const char*>(buffer.data()), moved.num_bytes});
    if (reader_.must_say_continue()) {  // The buffer of a connection that has sent nothing is free.
      const std::span<const std::byte> leave =
          std::as_bytes(std::span(std::string_view("HTTP/1.1 100 Continue\r\n\r\n")));
      stream_->write(std::span(&leave, 1));
    }
  }
  return {Outcome::kMore};
}

bool HttpConnection::drain() {
  std::array<std::byte, 16384> buffer;
  while (num_drained_ < kMaxDrainedBytes) {
    const Moved moved = stream_->read(buffer);
    if (!moved.is_done()) return moved.outcome == Moved::Outcome::kWantRead;
    num_drained_ += moved.num_bytes;
  }
  return false;
}

HttpRequest HttpConnection::request_of(HttpMessage message) const {
  return {.path = std::move(message.path),
          .method = message.method,
          .body = std::move(message.body),
          .host = host_,
          .authorization = message.field("authorization"),
          .certificate = stream_->peer(),
          .has_gone = [this] { return has_gone(); }};
}

bool HttpConnection::answer(const HttpHandler& handler, bool may_keep, Duration deadline,
                            bool takes_bodies) {
  HttpMessage message = reader_.take();
  const HttpMessage asked{.method = message.method, .is_version_1_0 = message.is_version_1_0};
  const bool keeps_alive = may_keep && message.keeps_alive;
  HttpReply reply{.status = 405, .body = "only GET is answered here\n"};
  if (takes_bodies || asked.method == "GET" || asked.method == "HEAD") {
    try {
      reply = handler(request_of(std::move(message)));
    } catch (const std::exception&) {  // What went wrong is nothing that strangers may read.
      reply = {.status = 500, .body = "something went wrong here\n"};
    }
  }
  return send_reply(reply, asked, keeps_alive, deadline) && keeps_alive;
}

bool HttpConnection::send_reply(const HttpReply& reply, const HttpMessage& asked, bool keeps_alive,
                                Duration deadline) {
  const bool is_stream = reply.stream != nullptr;
  const bool is_chunked = is_stream && !asked.is_version_1_0;
  auto fields = reply.fields;
  fields.emplace_back("Content-Type", reply.type);
  if (!reply.challenge.empty()) fields.emplace_back("WWW-Authenticate", reply.challenge);
  if (is_chunked) fields.emplace_back("Transfer-Encoding", "chunked");
  if (!is_stream) fields.emplace_back("Content-Length", fmt::to_string(reply.body.size()));
  // Without chunks only the connection's end says where a stream ends.
  const bool stays = keeps_alive && (!is_stream || is_chunked);
  fields.emplace_back("Connection", stays ? "keep-alive" : "close");
  std::string head = http_head(reply.status, fields);
  if (asked.method == "HEAD") return write_all(head, clock_.now() + deadline) && stays;
  if (is_stream) return send_stream(reply, std::move(head), is_chunked, deadline) && stays;
  head += reply.body;
  return write_all(head, clock_.now() + deadline) && stays;
}

bool HttpConnection::send_stream(const HttpReply& reply, std::string head, bool is_chunked,
                                 Duration deadline) {
  if (!write_all(head, clock_.now() + deadline)) return false;
  StreamSink sink([&, this](std::string_view part) {
    return write_all(is_chunked ? http_chunk(part) : std::string(part), clock_.now() + deadline);
  });
  try {
    reply.stream(sink);
  } catch (const std::exception&) {  // The missing end tells the client.
    return false;
  }
  return sink.is_read() && (!is_chunked || write_all(http_chunk(""), clock_.now() + deadline));
}

bool HttpConnection::write_all(std::string_view bytes, Time deadline) {
  while (!bytes.empty()) {
    const std::span<const std::byte> part = std::as_bytes(std::span(bytes));
    const Moved moved = stream_->write(std::span(&part, 1));
    if (moved.is_done()) {
      bytes.remove_prefix(moved.num_bytes);
      continue;
    }
    if (moved.outcome == Moved::Outcome::kEnded) return false;
    const Duration patience = std::min(kPollInterval, Duration(deadline - clock_.now()));
    if (stopping_ || patience <= Duration{}) return false;
    const bool wants_to_read = moved.outcome == Moved::Outcome::kWantRead;
    pollfd entry{descriptor(), static_cast<short>(wants_to_read ? POLLIN : POLLOUT), 0};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
    ::poll(&entry, 1, static_cast<int>(ms));
  }
  return true;
}

void HttpConnection::refuse() {
  const std::string body = reader_.fault() + "\n";
  const std::string reply =
      http_head(reader_.status(), {{"Content-Type", "text/plain"},
                                   {"Content-Length", fmt::to_string(body.size())},
                                   {"Connection", "close"}}) +
      body;
  const std::span<const std::byte> part = std::as_bytes(std::span(reply));
  stream_->write(std::span(&part, 1));
}

void HttpConnection::say_goodbye() {
  stream_->say_goodbye();
  ::shutdown(descriptor(), SHUT_WR);
}

bool HttpConnection::has_gone() const {
  if (stopping_) return true;
  pollfd entry{descriptor(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace atl::net
