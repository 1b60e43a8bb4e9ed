#include "atoll/chain/peer_lines.h"

#include <algorithm>
#include <utility>

#include "atoll/chain/wire.h"

namespace atl::chain {

net::ConnectionId PeerLines::call(const std::string& address, net::Plane plane) {
  return transport_.connect_as(authority_, address, plane);
}

void PeerLines::send(net::ConnectionId id, const Message& message) {
  Bytes frame = encode(message);
  const MutexLock lock(mutex_);
  Line& line = lines_[id];
  if (line.is_closed) return;
  if (frame.size() > net::kMaxFrameBytes) return give_up(id, line);  // Nobody would take it.
  line.bytes += frame.size();
  bytes_ += frame.size();
  line.queue.push_back(std::move(frame));
  if (line.bytes > kMaxQueuedBytes) return give_up(id, line);
  flush(id, line);
  while (bytes_ > kMaxQueuedBytesOfAll) {
    const auto longest =
        std::ranges::max_element(lines_, {}, [](const auto& each) { return each.second.bytes; });
    give_up(longest->first, longest->second);
  }
}

void PeerLines::send_patiently(net::ConnectionId id, const Message& message) {
  Bytes frame = encode(message);
  const MutexLock lock(mutex_);
  Line& line = lines_[id];
  if (line.is_closed) return;
  if (frame.size() > net::kMaxFrameBytes) return give_up(id, line);
  line.patient_bytes += frame.size();
  line.patient.push_back(std::move(frame));
  flush(id, line);
}

size_t PeerLines::num_patient(net::ConnectionId id) const {
  const MutexLock lock(mutex_);
  const auto line = lines_.find(id);
  return line == lines_.end() ? 0 : line->second.patient_bytes;
}

bool PeerLines::has_stalled(net::ConnectionId id, Time now) {
  const MutexLock lock(mutex_);
  const auto found = lines_.find(id);
  if (found == lines_.end()) return false;
  Line& line = found->second;
  if (line.patient_bytes > 0 && line.patient_bytes == line.seen_bytes) {
    return now - line.seen > kStall;
  }
  line.seen_bytes = line.patient_bytes;
  line.seen = now;
  return false;
}

/// What else is sent there is dropped, until the transport says that the line is lost.
void PeerLines::give_up(net::ConnectionId id, Line& line) {
  bytes_ -= line.bytes;
  line = {.queue = {}, .patient = {}, .is_closed = true};
  transport_.close(id);
}

void PeerLines::forget(net::ConnectionId id) {
  const auto line = lines_.extract(id);
  if (!line.empty()) bytes_ -= line.mapped().bytes;
}

/// Sends the first of the queue. False: the line is gone.
bool PeerLines::take(net::ConnectionId id, Line& line, std::deque<Bytes>& queue) {
  const size_t size = queue.front().size();
  const net::Sent sent = transport_.send(id, queue.front());
  if (sent == net::Sent::kFull) {
    line.is_full = true;
    return true;
  }
  if (sent == net::Sent::kClosed) {
    forget(id);
    return false;
  }
  queue.pop_front();
  if (&queue == &line.patient) {
    line.patient_bytes -= size;
  } else {
    line.bytes -= size;
    bytes_ -= size;
  }
  return true;
}

void PeerLines::flush(net::ConnectionId id, Line& line) {
  while (!line.is_full && !(line.queue.empty() && line.patient.empty())) {
    if (!take(id, line, line.queue.empty() ? line.patient : line.queue)) return;
  }
}

void PeerLines::close(net::ConnectionId id) { transport_.close(id); }

void PeerLines::note(const net::Event& event) {
  const MutexLock lock(mutex_);
  if (const auto* writable = std::get_if<net::Writable>(&event)) {
    const auto line = lines_.find(writable->connection);
    if (line == lines_.end()) return;
    line->second.is_full = false;
    flush(line->first, line->second);
  } else if (const auto* lost = std::get_if<net::Lost>(&event)) {
    forget(lost->connection);
  }
}

}  // namespace atl::chain
