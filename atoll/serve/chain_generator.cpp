#include "atoll/serve/chain_generator.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/random.h"
#include "atoll/chain/wire.h"
#include "atoll/swarm/version.h"

namespace atl::serve {
namespace {

constexpr size_t kMaxQueuedBytes = size_t{1} << 30;
constexpr int kMostEvents = 256;                 // Heard before what they bring is read.
constexpr int64_t kLogitRows = 64;               // At a time.
constexpr size_t kFrameBytes = size_t{2} << 20;  // Of rows, in a message.
constexpr int64_t kChunkTokens = 256;
constexpr int64_t kUsualAnswer = 128;  // Tokens, where nobody knows.

uint64_t random_id() { return std::stoull(random_name(), nullptr, 16); }

/// Of a text that is longer, earlier keys may be others: that needs all layers at once.
int64_t context_of(const model::Model& model) {
  return std::min(model.config().context(), model.config().steady_positions());
}

chain::ConductorOptions conductor_options(const model::Model& model, const ChainOptions& options,
                                          uint64_t gateway) {
  const size_t row = chain::row_bytes(options.precision, model.config().hidden_size);
  return {
      .gateway = gateway,
      .num_layers = static_cast<int32_t>(model.config().num_layers),
      .chunk_tokens = std::clamp<int64_t>(static_cast<int64_t>(kFrameBytes / row), 1, kChunkTokens),
      .max_sessions = options.max_sessions};
}

}  // namespace

ChainGenerator::ChainGenerator(const model::Model& model, ChainOptions options,
                               const net::TransportFactory& make_transport, const Clock& clock)
    : TextDesk(context_of(model), model.config().vocab_size),
      model_(model),
      options_(std::move(options)),
      clock_(clock),
      gateway_(random_id()),
      inbox_(kMaxQueuedBytes),
      transport_(make_transport([this](net::Event event) {
        const auto* received = std::get_if<net::Received>(&event);
        const size_t size = received != nullptr ? received->frame.size() : 0;
        inbox_.push(std::move(event), size);
      })),
      lines_(*transport_, options_.post.authority),
      post_(options_.post, *transport_),
      conductor_(conductor_options(model, options_, gateway_)),
      no_layers_(
          std::make_shared<model::KvPool>(model.config(), model.device(), model::LayerRange{}, 0)),
      thread_([this] { run(); }) {}

ChainGenerator::~ChainGenerator() {
  stops_ = true;
  inbox_.push(std::nullopt);
  thread_.join();
}

void ChainGenerator::run() {
  const at::NoGradGuard no_grad;
  uint64_t version = 0;
  Time next_tick{};
  while (!stops_) {
    Time now = clock_.now();
    if (now >= post_.next_deadline()) post_.tick(now);
    if (now >= next_tick) {
      conductor_.tick(now);
      next_tick = now + chain::Conductor::kTick;
      act();
    }
    auto event = inbox_.pop(std::max<Duration>(next_tick - now, Duration{}));
    now = clock_.now();
    for (int i = 0; event && i < kMostEvents; ++i) {
      if (*event) handle(**event, now);
      event = inbox_.pop(Duration{});
    }
    if (event && *event) handle(**event, now);
    if (version != post_.servers_version()) {
      version = post_.servers_version();
      conductor_.servers(post_.servers(), now);
    }
    take_news(now);
    act();
    give(now);
    act();
    report();
  }
}

// ---- What its askers want.

chain::Conductor::Text ChainGenerator::text_of(const Sequence& sequence) const {
  return {.num_tokens = std::ssize(sequence.tokens()),
          .wanted_from = sequence.wanted_from(),
          .num_to_come = sequence.wants_logits() ? kUsualAnswer : 1};
}

void ChainGenerator::take_news(Time now) {
  Arrived arrived;
  std::set<Id> cancelled;
  {
    const MutexLock lock(mutex_);
    arrived = take_arrived();
    cancelled = take_cancelled();
  }
  for (auto& sequence : arrived) {
    const Id id = sequence->id();
    counts_.prompt_tokens += std::ssize(sequence->tokens());
    const auto text = text_of(*sequence);
    sequences_[id] = std::move(sequence);
    conductor_.add(id, text, now);
  }
  for (const Id id : cancelled) let_go(id);
}

void ChainGenerator::let_go(Id id) {
  conductor_.remove(id);
  sequences_.erase(id);
}

// ---- Servers.

void ChainGenerator::call(const std::string& address) {
  Lines& lines = servers_[address];
  lines = {.control = lines_.call(address, net::Plane::kControl),
           .bulk = lines_.call(address, net::Plane::kBulk)};
  for (const net::ConnectionId line : {lines.control, lines.bulk}) {
    addresses_[line] = address;
    lines_.send(line, chain::Greet{.protocol = chain::kProtocol,
                                   .version = swarm::program_version(),
                                   .model = options_.digest,
                                   .gateway = gateway_});
  }
}

/// One line is gone: the other one goes as well.
void ChainGenerator::lose(const std::string& address, const std::string& reason, Time now) {
  const auto found = servers_.find(address);
  if (found == servers_.end()) return;
  for (const net::ConnectionId line : {found->second.control, found->second.bulk}) {
    addresses_.erase(line);
    lines_.close(line);
  }
  servers_.erase(found);
  conductor_.lost(address, reason, now);
}

void ChainGenerator::handle(const net::Event& event, Time now) {
  const auto line = std::visit([](const auto& any) { return any.connection; }, event);
  if (post_.owns(line)) return post_.handle(event, now);
  lines_.note(event);
  const auto found = addresses_.find(line);
  if (found == addresses_.end()) return;
  const std::string address = found->second;
  if (const auto* lost = std::get_if<net::Lost>(&event)) {
    lose(address, lost->reason, now);
  } else if (const auto* received = std::get_if<net::Received>(&event)) {
    try {
      hear(address, line, chain::decode(received->frame), now);
    } catch (const InputError& error) {
      lose(address, error.what(), now);
    }
  }
}

void ChainGenerator::hear(const std::string& address, net::ConnectionId /*line*/,
                          const chain::Message& message, Time now) {
  if (const auto* output = std::get_if<chain::Output>(&message)) {
    const auto arrived = conductor_.output(*output, now);
    if (!arrived) return;
    found_.push_back({.id = arrived->key,
                      .begin = arrived->begin,
                      .rows = {.begin = output->begin,
                               .num_tokens = output->num_tokens,
                               .precision = output->precision,
                               .rows_TC = output->rows_TC}});
  } else if (const auto* greeted = std::get_if<chain::Greeted>(&message)) {
    if (++servers_.at(address).num_greeted == 2) conductor_.greeted(address, *greeted, now);
  } else if (const auto* pong = std::get_if<chain::Pong>(&message)) {
    conductor_.pong(address, *pong, now);
  } else if (const auto* trouble = std::get_if<chain::Trouble>(&message)) {
    conductor_.trouble(address, *trouble, now);
  } else if (const auto* refused = std::get_if<chain::Refused>(&message)) {
    lose(address, refused->reason, now);
  } else {
    throw InputError("a gateway is not told " + chain::kind_name(message));
  }
}

// ---- What comes of it.

/// What has come for texts: their logits in one product, so that the head is read once.
void ChainGenerator::give(Time /*now*/) {
  if (found_.empty()) return;
  const int64_t width = model_.config().hidden_size;
  struct Wanted {
    Sequence* sequence;
    int64_t begin;
    int64_t count;
  };
  std::vector<Wanted> wanted;
  std::vector<float> values_WC;
  for (const Found& found : std::exchange(found_, {})) {
    const auto sequence = sequences_.find(found.id);
    if (sequence == sequences_.end()) continue;
    const int64_t begin = std::max(found.begin, sequence->second->wanted_from());
    chain::Rows rows = chain::cut(found.rows, begin, found.rows.end());
    if (rows.num_tokens == 0) continue;
    const size_t at = values_WC.size();
    values_WC.resize(at + rows.num_tokens * static_cast<size_t>(width));
    try {
      chain::decode_rows(rows, std::span(values_WC).subspan(at));
      wanted.push_back({sequence->second.get(), begin, rows.num_tokens});
    } catch (const InputError&) {
      values_WC.resize(at);
      const Id id = found.id;
      conductor_.distrust(id, clock_.now());
    }
  }
  if (wanted.empty()) return;
  const at::Tensor x_1WC = at::empty({1, static_cast<int64_t>(values_WC.size()) / width, width},
                                     at::TensorOptions().dtype(at::kFloat));
  std::ranges::copy(values_WC, x_1WC.mutable_data_ptr<float>());
  const at::Tensor hidden_WC = model_.decoder().finish(x_1WC)[0];
  int64_t first = 0;
  std::set<Id> done;
  std::set<Id> grown;
  for (const Wanted& each : wanted) {
    Sequence& sequence = *each.sequence;
    for (int64_t i = 0; i < each.count; i += kLogitRows) {
      const int64_t size = std::min(kLogitRows, each.count - i);
      at::Tensor rows = hidden_WC.narrow(0, first + i, size);
      if (sequence.wants_logits()) rows = model_.logits(rows);
      rows = rows.contiguous();
      const MutexLock lock(mutex_);
      if (done.contains(sequence.id())) break;
      const auto length = std::ssize(sequence.tokens());
      try {
        for (int64_t j = 0; j < size; ++j) {
          if (!sequence.take(each.begin + i + j, rows[j])) continue;
          done.insert(sequence.id());
          break;
        }
      } catch (const InputError& error) {
        sequence.fail({.kind = decoding::Refusal::Kind::kUnavailable, .message = error.what()});
        done.insert(sequence.id());
      }
      counts_.made_tokens += std::ssize(sequence.tokens()) - length;
      if (std::ssize(sequence.tokens()) > length) grown.insert(sequence.id());
    }
    first += each.count;
  }
  for (const Id id : done) let_go(id);
  for (const Id id : grown) {
    if (const auto found = sequences_.find(id); found != sequences_.end()) {
      conductor_.grow(id, text_of(*found->second));
    }
  }
}

void ChainGenerator::feed(const chain::Conductor::Feed& feed) {
  const auto server = servers_.find(feed.address);
  const auto sequence = sequences_.find(feed.key);
  if (server == servers_.end() || sequence == sequences_.end()) return;
  const int64_t begin = feed.work.begin;
  const at::Tensor tokens_1T =
      at::empty({1, feed.end - begin}, at::TensorOptions().dtype(at::kLong));
  std::copy(sequence->second->tokens().begin() + begin,
            sequence->second->tokens().begin() + feed.end, tokens_1T.mutable_data_ptr<int64_t>());
  model::KvCache before(no_layers_);  // Says which positions they have, and holds nothing.
  before.advance(begin);
  const model::CachedRow row{&before, feed.end - begin};
  const at::Tensor x_TC =
      model_.decoder().embed(tokens_1T, std::span(&row, 1))[0].to(at::kFloat).contiguous();
  chain::Rows rows =
      chain::encode_rows({x_TC.const_data_ptr<float>(), static_cast<size_t>(x_TC.numel())}, begin,
                         model_.config().hidden_size, options_.precision);
  chain::Work work = feed.work;
  work.precision = rows.precision;
  work.num_tokens = rows.num_tokens;
  work.rows_TC = std::move(rows.rows_TC);
  lines_.send(server->second.bulk, work);
}

void ChainGenerator::act() {
  for (auto actions = conductor_.take_actions(); !actions.empty();
       actions = conductor_.take_actions()) {
    for (const auto& action : actions) {
      if (const auto* rows = std::get_if<chain::Conductor::Feed>(&action)) {
        feed(*rows);
      } else if (const auto* say = std::get_if<chain::Conductor::Say>(&action)) {
        const auto server = servers_.find(say->address);
        if (server != servers_.end()) lines_.send(server->second.control, say->message);
      } else if (const auto* connect = std::get_if<chain::Conductor::Connect>(&action)) {
        call(connect->address);
      } else if (const auto* hang_up = std::get_if<chain::Conductor::HangUp>(&action)) {
        lose(hang_up->address, "it does not answer", clock_.now());
      } else if (const auto* refuse = std::get_if<chain::Conductor::Refuse>(&action)) {
        const auto sequence = sequences_.find(refuse->key);
        if (sequence == sequences_.end()) continue;
        const MutexLock lock(mutex_);
        sequence->second->fail(
            {.kind = decoding::Refusal::Kind::kUnavailable, .message = refuse->reason});
        sequences_.erase(sequence);
      }
    }
  }
}

void ChainGenerator::report() {
  counts_.num_waiting = conductor_.num_waiting();
  counts_.num_running = conductor_.num_sessions() - counts_.num_waiting;
  counts_.recoveries = conductor_.recoveries();
  const MutexLock lock(mutex_);
  set_status(counts_);
}

}  // namespace atl::serve
