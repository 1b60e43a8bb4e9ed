// The thread of a block server that reads, and sends what comes of it.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <set>
#include <utility>

#include "atoll/serve/block_server.h"
#include "atoll/swarm/version.h"

namespace atl::serve {
namespace {

constexpr double kPassSeconds = 0.5;
constexpr int64_t kFewestTokens = 16;               // That a pass reads of texts.
constexpr size_t kMostAnswers = size_t{256} << 20;  // Bytes, to lessons, that nobody has taken.

/// Whose answer it is, of those that lessons have.
std::optional<chain::SessionId> lesson_of(const chain::Message& message) {
  if (const auto* rows = std::get_if<chain::LessonRows>(&message)) return rows->lesson;
  if (const auto* values = std::get_if<chain::LessonValues>(&message)) return values->lesson;
  if (const auto* learnt = std::get_if<chain::Learnt>(&message)) return learnt->lesson;
  return std::nullopt;
}

int64_t ticks(Time time) { return time.time_since_epoch().count(); }

}  // namespace

ReadingSpeed measure_speed(const model::Model& model, const Clock& clock) {
  constexpr int64_t kMany = 64;
  const auto& layers = model.decoder().layers();
  const auto seconds_for = [&](int64_t num_tokens, int64_t repeats) {
    model::KvCache cache = model.kv_cache();
    const at::Tensor x_1TC =
        at::zeros({1, num_tokens, model.config().hidden_size}, model.device()).fill_(0.5);
    const Time begin = clock.now();
    for (int64_t i = 0; i < repeats; ++i) {
      cache.truncate(0);
      if (!cache.prepare(num_tokens)) return 1.0;
      const model::CachedRow row{&cache, num_tokens};
      model.layers_1TC(layers, x_1TC, std::span(&row, 1));
    }
    return std::chrono::duration<double>(clock.now() - begin).count() /
           static_cast<double>(repeats);
  };
  seconds_for(1, 1);  // Reads the weights from the disk.
  const auto count = static_cast<double>(layers.size());
  return {.layers_per_s = count / seconds_for(1, 4),
          .token_layers_per_s = count * kMany / seconds_for(kMany, 1)};
}

void BlockServer::read(chain::Span layers) {
  try {
    const auto model = options_.load({layers.begin, layers.end}, [this] {
      const MutexLock lock(mutex_);
      return stops_reading_;
    });
    if (model == nullptr) return;
    const ReadingSpeed speed = measure_speed(*model, clock_);
    BlockEngineOptions options = options_.engine;
    // So that a pass does not hold up who only wants a token.
    const double most = kPassSeconds * speed.token_layers_per_s / layers.size();
    options.prompt_tokens =
        std::clamp<int64_t>(static_cast<int64_t>(most), kFewestTokens, options.prompt_tokens);
    AdapterShelf adapters(*model);
    options.adapters = &adapters;
    BlockEngine engine(*model, options);
    BlockTrainer trainer(*model, adapters, options_.trainer);
    num_free_ = engine.num_free();
    {
      const MutexLock lock(mutex_);
      loaded_ = {.speed = speed, .num_positions = engine.num_positions()};
    }
    read_on(engine, trainer);
  } catch (const std::exception& error) {
    const MutexLock lock(mutex_);
    failure_ = error.what();
  }
}

/// Gateways that have not taken the answers to their lessons yet; all, where too much waits in all.
/// Who takes nothing for long is hung up on.
std::set<uint64_t> BlockServer::full_gateways() {
  const Time now = clock_.now();
  std::set<uint64_t> full;
  std::set<uint64_t> all;
  size_t total = 0;
  for (const auto& [gateway, lines] : gateways_) {
    all.insert(gateway);
    const size_t bytes = lines_.num_patient(lines.bulk);
    total += bytes;
    if (bytes > 0) full.insert(gateway);
    if (lines_.has_stalled(lines.bulk, now)) lines_.close(lines.bulk);
  }
  return total > kMostAnswers ? all : full;
}

/// Who is answered goes first: lessons go on, a layer at a time, when there is nothing to read.
/// That is no pass: a layer of a large micro-batch takes long, and the server does not hang.
void BlockServer::read_on(BlockEngine& engine, BlockTrainer& trainer) {
  MutexLock lock(mutex_);
  std::set<uint64_t> full;
  while (true) {
    arrived_.wait(lock, [&]() ATOLL_REQUIRES(mutex_) {
      full = full_gateways();
      return stops_reading_ || !jobs_.empty() || !lessons_.empty() || !engine.is_idle() ||
             trainer.has_work(full);
    });
    if (stops_reading_) return;
    auto jobs = std::exchange(jobs_, {});
    auto lessons = std::exchange(lessons_, {});
    jobs_bytes_ = 0;
    lessons_bytes_ = 0;
    lock.unlock();
    for (auto& job : jobs) job(engine);
    for (auto& lesson : lessons) lesson(trainer);
    engine.tick(clock_.now());
    if (!engine.is_idle()) {
      pass_began_ = ticks(clock_.now());
      engine.read(clock_.now());
      pass_began_ = 0;
    } else {
      trainer.step(full);
    }
    num_passes_ = engine.num_passes();
    num_sessions_ = engine.num_sessions();
    for (const chain::Message& message : engine.take_sent()) send(message);
    for (KeptPages& pages : engine.take_kept()) {
      if (desk_) desk_->keep(std::move(pages));
    }
    for (const chain::Message& message : trainer.take_sent()) send(message);
    lock.lock();
  }
}

std::optional<net::ConnectionId> BlockServer::neighbour(const std::string& address) {
  return line_to(neighbours_, address);
}

std::optional<net::ConnectionId> BlockServer::line_to(
    std::map<std::string, net::ConnectionId>& lines, const std::string& address) {
  auto found = lines.find(address);
  if (found == lines.end()) {
    if (!known_.contains(address)) return std::nullopt;
    found = lines.emplace(address, 0).first;
    found->second = lines_.call(address, net::Plane::kBulk);
    lines_.send(found->second, chain::Greet{.protocol = chain::kProtocol,
                                            .version = swarm::program_version(),
                                            .model = options_.lease.digest,
                                            .gateway = 0});
  }
  return found->second;
}

void BlockServer::send(const chain::Message& message) {
  const auto line = line_for(message);
  if (!line) return;
  if (lesson_of(message)) {
    lines_.send_patiently(*line, message);
  } else {
    lines_.send(*line, message);
  }
}

std::optional<net::ConnectionId> BlockServer::line_for(const chain::Message& message) {
  const MutexLock lock(mutex_);
  if (const auto* work = std::get_if<chain::Work>(&message)) {
    const std::string& address = work->hops.front().address;
    const auto line = neighbour(address);
    if (!line) {
      jobs_.emplace_back([address](BlockEngine& engine) { engine.lose_neighbour(address); });
    }
    return line;
  }
  uint64_t gateway = 0;
  bool is_bulk = false;
  if (const auto* output = std::get_if<chain::Output>(&message)) {
    gateway = output->session.gateway;
    is_bulk = true;
  } else if (const auto* testimony = std::get_if<chain::Testimony>(&message)) {
    gateway = testimony->session.gateway;
  } else if (const auto* restored = std::get_if<chain::Restored>(&message)) {
    gateway = restored->session.gateway;
  } else if (const auto* unadapted = std::get_if<chain::Unadapted>(&message)) {
    gateway = unadapted->adapter.gateway;
  } else if (const auto lesson = lesson_of(message)) {
    gateway = lesson->gateway;
    is_bulk = true;
  } else {
    gateway = std::get<chain::Trouble>(message).session.gateway;
  }
  const auto lines = gateways_.find(gateway);
  if (lines == gateways_.end()) return std::nullopt;
  // Who trains has one line alone.
  const bool takes_bulk = is_bulk || lines->second.control == 0;
  return takes_bulk ? lines->second.bulk : lines->second.control;
}

}  // namespace atl::serve
