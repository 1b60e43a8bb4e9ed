// A server of some of a model's layers that adds noise to the rows that it sends: for
// swarm_serving_test.py and bench/serving_liars.py. A true server but for what its frames pass
// through on their way out. In the clear.
//
//   rogue-server HOST:PORT MODEL NAME FIRST END PERCENT honest|open
//
// "open": when it is asked it says what it has sent; "honest": what it should have.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/mutex.h"
#include "atoll/base/process.h"
#include "atoll/base/random.h"
#include "atoll/chain/rows.h"
#include "atoll/chain/wire.h"
#include "atoll/net/tcp_transport.h"
#include "atoll/serve/block_server.h"
#include "atoll/weights/hf_folder.h"
#include "atoll/weights/model_parts.h"

namespace {

using atl::Bytes;
using atl::chain::Message;

/// Another one, but for rows and what is said of them.
class NoisyTransport final : public atl::net::Transport {
 public:
  NoisyTransport(std::unique_ptr<Transport> inner, size_t width, double size, bool is_open)
      : inner_(std::move(inner)), width_(width), size_(size), is_open_(is_open) {}

  atl::Result<std::string> listen(const std::string& address) override {
    return inner_->listen(address);
  }
  atl::net::ConnectionId connect(const std::string& address, atl::net::Plane plane) override {
    return inner_->connect(address, plane);
  }
  atl::net::ConnectionId meet(const atl::net::Meeting& meeting, atl::net::Plane plane) override {
    return inner_->meet(meeting, plane);
  }
  void close(atl::net::ConnectionId connection) override { inner_->close(connection); }
  atl::net::Traffic traffic() const override { return inner_->traffic(); }
  atl::net::Sent send(atl::net::ConnectionId connection, Bytes frame) override {
    if (!atl::chain::is_message(frame)) return inner_->send(connection, std::move(frame));
    Message message = atl::chain::decode(frame);
    if (auto* work = std::get_if<atl::chain::Work>(&message)) add_noise(*work);
    if (auto* output = std::get_if<atl::chain::Output>(&message)) add_noise(*output);
    auto* testimony = std::get_if<atl::chain::Testimony>(&message);
    if (testimony != nullptr && is_open_) confess(*testimony);
    return inner_->send(connection, atl::chain::encode(message));
  }

 private:
  /// Its size is relative to each row's.
  void add_noise(auto& message) {
    atl::chain::Rows& rows = message.rows;
    if (rows.num_tokens == 0) return;
    std::vector<float> values(rows.num_tokens * width_);
    atl::chain::decode_rows(rows, values);
    const atl::MutexLock lock(mutex_);
    for (size_t i = 0; i < rows.num_tokens; ++i) {
      const std::span<float> row = std::span(values).subspan(i * width_, width_);
      double square = 0;
      for (const float value : row) square += static_cast<double>(value) * value;
      const double each = size_ * std::sqrt(square / static_cast<double>(width_));
      for (float& value : row) {
        value += static_cast<float>(each * atl::random_normal(7, 0, ++num_drawn_));
      }
      sent_[{message.session.number, rows.begin + static_cast<int64_t>(i)}] = {row.begin(),
                                                                               row.end()};
    }
    rows =
        atl::chain::encode_rows(values, rows.begin, static_cast<int64_t>(width_), rows.precision);
  }
  void confess(atl::chain::Testimony& testimony) {
    const atl::MutexLock lock(mutex_);
    for (size_t i = 0; i < testimony.made.size(); ++i) {
      const auto row = sent_.find({testimony.session.number, static_cast<int64_t>(i)});
      if (row == sent_.end()) continue;
      testimony.made[i] = atl::chain::fingerprint(row->second, testimony.made[i].seed);
    }
  }

  const std::unique_ptr<Transport> inner_;
  const size_t width_;
  const double size_;
  const bool is_open_;
  atl::Mutex mutex_;
  uint64_t num_drawn_ ATOLL_GUARDED_BY(mutex_) = 0;
  /// By session and position.
  std::map<std::pair<uint64_t, int64_t>, std::vector<float>> sent_ ATOLL_GUARDED_BY(mutex_);
};

void serve(const std::vector<std::string>& words) {
  const std::filesystem::path folder = words.at(1);
  const auto config = atl::weights::load_hf_config(folder).config;
  const auto files = std::make_shared<const atl::weights::ModelFiles>(folder, config);
  const atl::SystemClock clock;
  atl::swarm::Inbox<atl::net::Event> inbox(size_t{1} << 30);
  NoisyTransport transport(
      atl::net::make_tcp_transport({.trust = nullptr, .insecure = false}, clock,
                                   [&](atl::net::Event event) { inbox.push(std::move(event)); }),
      static_cast<size_t>(config.hidden_size), std::stod(words.at(5)) / 100, words.at(6) == "open");
  const auto bound = transport.listen("127.0.0.1:0");
  if (!bound) throw std::runtime_error(bound.error().message);
  const auto layers = static_cast<int32_t>(config.num_layers);
  atl::serve::BlockServer server(
      {.post = {.coordinator = words.at(0),
                .authority = {},
                .tell =
                    [](const atl::Event& event) { fmt::print(stderr, "{}\n", event.sentence); }},
       .lease = {.name = words.at(2),
                 .address = *bound,
                 .model = "mine",
                 .digest = atl::weights::ModelParts(config, files, /*num_threads=*/1).digest(),
                 .num_layers = layers,
                 .max_layers = layers,
                 .is_fixed = true,
                 .layers = {std::stoi(words.at(3)), std::stoi(words.at(4))},
                 .links = {}},
       .engine = {.kv_bytes = int64_t{100} << 20},
       .load =
           [&](atl::model::LayerRange range, const std::function<bool()>&) {
             return std::make_unique<atl::model::Model>(config, files, range);
           },
       .lending = {},
       .log = [](const std::string& line) { fmt::print(stderr, "{}\n", line); }},
      transport, inbox, clock);
  fmt::print("'{}' serves at {}\n", words.at(2), *bound);
  std::fflush(stdout);
  server.run([] { return atl::num_interrupts() > 0; });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    atl::prepare_process();
    atl::watch_interrupts();
    at::set_num_threads(1);
    serve({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "rogue-server: {}\n", error.what());
    return 1;
  }
  return 0;
}
