#include "pipe.h"

#include <algorithm>
#include <utility>

#include "atoll/base/random.h"

namespace atl::wan {
namespace {

Duration time_to_send(int64_t bytes, double bits_per_second) {
  return Duration(static_cast<int64_t>(static_cast<double>(bytes) * 8e9 / bits_per_second));
}

}  // namespace

Pipe::Pipe(const PipeOptions& options, uint64_t seed, uint64_t stream)
    : options_(options), seed_(seed), stream_(stream) {}

void Pipe::push(Time now, Packet packet) {
  const uint64_t number = num_pushed_++;
  if (options_.loss > 0 && random_uniform(seed_, stream_, number) < options_.loss) {
    ++counts_.lost;
    return;
  }
  if (is_cut_) {
    ++counts_.cut;
    return;
  }
  drain_queue(now);
  const auto bytes = static_cast<int64_t>(packet.bytes.size());
  Time sent = now;
  if (options_.bits_per_second > 0) {
    if (waiting_bytes_ + bytes > options_.queue_bytes) {
      ++counts_.full;
      return;
    }
    // A token bucket: sending may run ahead of the steady line by the bucket's depth.
    line_free_ = std::max(line_free_, now) + time_to_send(bytes, options_.bits_per_second);
    sent = std::max(now, line_free_ - time_to_send(options_.burst_bytes, options_.bits_per_second));
  }
  Time arrival = sent + options_.delay;
  if (!under_way_.empty()) {  // set() may have made the line faster or shorter.
    sent = std::max(sent, under_way_.back().sent);
    arrival = std::max(arrival, under_way_.back().arrival);
  }
  ++counts_.packets;
  counts_.bytes += bytes;
  ++num_waiting_;
  waiting_bytes_ += bytes;
  under_way_.push_back({sent, arrival, std::move(packet)});
}

std::optional<Packet> Pipe::pop(Time now) {
  drain_queue(now);
  if (under_way_.empty() || under_way_.front().arrival > now) return std::nullopt;
  Packet packet = std::move(under_way_.front().packet);
  packet.arrived = under_way_.front().arrival;
  under_way_.pop_front();
  return packet;
}

std::optional<Time> Pipe::next_arrival() const {
  if (under_way_.empty()) return std::nullopt;
  return under_way_.front().arrival;
}

void Pipe::cut() {
  is_cut_ = true;
  counts_.cut += static_cast<int64_t>(under_way_.size());
  under_way_.clear();
  num_waiting_ = 0;
  waiting_bytes_ = 0;
  line_free_ = Time{};
}

void Pipe::drain_queue(Time now) {
  while (num_waiting_ > 0) {
    const UnderWay& next = under_way_[under_way_.size() - num_waiting_];
    if (next.sent > now) return;
    --num_waiting_;
    waiting_bytes_ -= static_cast<int64_t>(next.packet.bytes.size());
  }
}

}  // namespace atl::wan
