// A chain generator's servers: its lines to them, and what they say.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/name.h"
#include "atoll/chain/events.h"
#include "atoll/chain/lease.h"
#include "atoll/chain/wire.h"
#include "atoll/serve/adapter_shelf.h"
#include "atoll/serve/chain_generator.h"
#include "atoll/serve/head.h"
#include "atoll/swarm/version.h"

namespace atl::serve {
namespace {

constexpr size_t kOrderBytes = size_t{1} << 19;  // In a message; one order may have more.

}  // namespace

void ChainGenerator::call(const std::string& address) {
  Lines& lines = servers_[address];
  lines = {.control = lines_.call(address, net::Plane::kPeer),
           .bulk = lines_.call(address, net::Plane::kBulk)};
  for (const net::ConnectionId line : {lines.control, lines.bulk}) {
    addresses_[line] = address;
    lines_.send(line, chain::Greet{.protocol = chain::kProtocol,
                                   .version = swarm::program_version(),
                                   .model = options_.digest,
                                   .gateway = gateway_});
  }
}

void ChainGenerator::feed(const chain::Conductor::Feed& feed) {
  const auto server = servers_.find(feed.address);
  const auto reading = readings_.find(feed.key);
  if (server == servers_.end() || reading == readings_.end()) return;
  const int64_t begin = feed.work.rows.begin;
  if (feed.is_first) {
    reading->second.is_private = reading->second.is_private || feed.num_rounded > 0;
    reading->second.text.sequence().skipped({.num_tokens = begin, .num_rounded = feed.num_rounded});
    counts_.cached_tokens += begin;
    counts_.prompt_tokens -= begin;
  }
  const std::vector<int64_t>& text = reading->second.text.ids();
  const auto tokens =
      std::span(text).subspan(static_cast<size_t>(begin), static_cast<size_t>(feed.end - begin));
  chain::Work work = feed.work;
  try {
    if (!options_.needs_head) {
      work.rows = embedded(tokens, begin);
      return lines_.send(server->second.bulk, work);
    }
    const chain::Rows rows{.begin = begin,
                           .num_tokens = static_cast<uint32_t>(tokens.size()),
                           .precision = options_.precision,
                           .ids = {tokens.begin(), tokens.end()},
                           .orders = reading->second.text.sequence().orders(begin, feed.end, text)};
    for (const auto& order : rows.orders) decoding::check(order, vocab_size());
    for (int64_t at = begin; at < feed.end;) {  // Orders may be large: a few in each message.
      int64_t end = at;
      size_t bytes = 0;
      while (end < feed.end && (end == at || bytes < kOrderBytes)) {
        bytes += decoding::num_bytes(rows.orders[static_cast<size_t>(end++ - begin)]);
      }
      work.rows = chain::cut(rows, at, end);
      lines_.send(server->second.bulk, work);
      at = end;
    }
  } catch (const InputError& error) {
    return refuse(feed.key, error.what());
  }
}

/// What was made of rows in fewer bits is not what is made of others.
void ChainGenerator::name_chunks(const Digest& secret) {
  chunk_names_.clear();
  const std::string by = fmt::format(" by {}", chain::name_of(options_.precision));
  chunk_names_.emplace_back(secret, options_.digest + by);
  for (const auto& adapter : options_.adapters) {
    chunk_names_.emplace_back(secret, options_.digest + digest_of(*adapter) + by);
  }
}

std::vector<kv::Chunk> ChainGenerator::chunks_of(const Sequence& sequence, uint32_t begin,
                                                 uint32_t end) const {
  const auto count = static_cast<size_t>(end * kv::kChunkTokens);
  const kv::ChunkNames& names = chunk_names_.at(sequence.adapter());
  auto chunks = names.chunks_of(sequence.tenant(), std::span(sequence.tokens()).first(count));
  chunks.erase(chunks.begin(), chunks.begin() + begin);
  return chunks;
}

void ChainGenerator::tell_of_chunks(chain::Conductor::KeepChunks keep) {
  const auto server = servers_.find(keep.address);
  const auto reading = readings_.find(keep.key);
  if (server == servers_.end() || reading == readings_.end()) return;
  const Sequence& sequence = reading->second.text.sequence();
  keep.message.group = chunk_names_.at(sequence.adapter()).group_of(sequence.tenant());
  keep.message.chunks = chunks_of(sequence, keep.message.first, keep.end);
  lines_.send(server->second.control, keep.message);
}

void ChainGenerator::tell_of_chunks(chain::Conductor::RestoreChunks restore) {
  const auto server = servers_.find(restore.address);
  const auto reading = readings_.find(restore.key);
  if (server == servers_.end() || reading == readings_.end()) return;
  const Sequence& sequence = reading->second.text.sequence();
  restore.message.group = chunk_names_.at(sequence.adapter()).group_of(sequence.tenant());
  restore.message.chunks = chunks_of(sequence, 0, restore.end);
  lines_.send(server->second.control, restore.message);
}

/// For what servers have had: it keeps none of it, so that what they say they have is what they
/// have.
std::unique_ptr<KvDesk> ChainGenerator::audit_desk() {
  if (!options_.load || options_.rounding == nullptr) return nullptr;
  const weights::ModelConfig& config = model_.config();
  const auto send = [this](const std::string& address, const chain::Message& message) {
    const MutexLock lock(mutex_);
    to_ask_.emplace_back(address, message);
    wake();
  };
  return std::make_unique<KvDesk>(
      KvDeskOptions{.store = {.memory_bytes = 0, .folder = {}, .disk_bytes = 0},
                    .model = options_.digest,
                    .shape = {.num_heads = config.num_kv_heads, .head_size = config.head_size()},
                    .rounding = options_.rounding},
      KvDesk::Hooks{.send = send,
                    .restored = [](const chain::Restore&, chain::Span, FoundChunks) {},
                    .tell = [](const std::string&) {}},
      clock_);
}

/// Of who is not there any more nothing is to be had: its audit waits for a moment, and is dropped.
void ChainGenerator::ask_for_audits() {
  std::vector<std::pair<std::string, chain::Message>> to_ask;
  {
    const MutexLock lock(mutex_);
    to_ask = std::exchange(to_ask_, {});
  }
  for (const auto& [address, message] : to_ask) {
    const auto server = servers_.find(address);
    if (server != servers_.end()) lines_.send(server->second.bulk, message);
  }
}

/// Throws InputError where the embedding is damaged.
chain::Rows ChainGenerator::embedded(std::span<const int64_t> tokens, int64_t begin) const {
  model::KvCache before(no_layers_);  // Says which positions they have, and holds nothing.
  before.advance(begin);
  const at::Tensor x_TC = embed_TC(model_, tokens, before);
  try {
    return chain::encode_rows({x_TC.const_data_ptr<float>(), static_cast<size_t>(x_TC.numel())},
                              begin, model_.config().hidden_size, options_.precision);
  } catch (const InputError& error) {
    throw InputError(fmt::format("the embedding of its tokens: {}", error.what()));
  }
}

void ChainGenerator::learn_servers(Time now) {
  if (servers_version_ == post_.servers_version()) return;
  servers_version_ = post_.servers_version();
  conductor_.servers(post_.servers(), now);
  const std::vector<chain::Lease> own = post_.servers_of(options_.digest);
  is_served_ = chain::are_all_served(own, static_cast<int32_t>(model_.config().num_layers),
                                     options_.needs_head);
  servers_kv_bytes_ = 0;
  servers_kv_capacity_bytes_ = 0;
  for (const chain::Lease& lease : own) {
    const double each = kv_bytes_per_layer_ * lease.layers.size();
    servers_kv_bytes_ += each * static_cast<double>(lease.num_positions - lease.num_free);
    servers_kv_capacity_bytes_ += each * static_cast<double>(lease.num_positions);
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
    give();  // What it had sent before counts.
    act();
    lose(address, lost->reason, now);
  } else if (const auto* opened = std::get_if<net::Opened>(&event)) {
    const std::string objection = objection_to(address, *opened);
    if (!objection.empty()) lose(address, objection, now);
  } else if (const auto* received = std::get_if<net::Received>(&event)) {
    try {
      hear(address, line, chain::decode(received->frame), now);
    } catch (const InputError& error) {
      lose(address, error.what(), now);
    }
  }
}

/// Why it is not the server that the coordinator knows at that address; empty where it is, and in
/// the clear.
std::string ChainGenerator::objection_to(const std::string& address,
                                         const net::Opened& opened) const {
  if (!opened.certificate) return {};
  const identity::PeerId& peer = opened.certificate->peer;
  const bool is_known = std::ranges::any_of(post_.servers(), [&](const chain::Lease& lease) {
    return lease.address == address && lease.name == peer.name;
  });
  if (peer.role == identity::Role::kServer && is_known) return {};
  return "another member is there: " + peer.name;
}

void ChainGenerator::hear(const std::string& address, net::ConnectionId line,
                          const chain::Message& message, Time now) {
  if (const auto* output = std::get_if<chain::Output>(&message)) {
    const auto arrived = conductor_.output(address, *output, now);
    if (!arrived) return;
    found_.push_back({.id = arrived->key,
                      .begin = arrived->begin,
                      .session = arrived->session,
                      .rows = output->rows});
  } else if (const auto* greeted = std::get_if<chain::Greeted>(&message)) {
    Lines& lines = servers_.at(address);
    (line == lines.bulk ? lines.bulk_greeted : lines.control_greeted) = true;
    if (lines.bulk_greeted && lines.control_greeted) conductor_.greeted(address, *greeted, now);
  } else if (const auto* pong = std::get_if<chain::Pong>(&message)) {
    conductor_.pong(address, *pong, now);
  } else if (const auto* restored = std::get_if<chain::Restored>(&message)) {
    conductor_.restored(address, *restored, now);
  } else if (const auto* testimony = std::get_if<chain::Testimony>(&message)) {
    conductor_.testimony(address, *testimony, now);
  } else if (const auto* fetched = std::get_if<chain::Fetched>(&message); fetched && audit_desk_) {
    audit_desk_->hear(address, *fetched);
  } else if (const auto* wanted = std::get_if<chain::Unadapted>(&message)) {
    send_adapter(address, *wanted);
  } else if (const auto* trouble = std::get_if<chain::Trouble>(&message)) {
    if (trouble->session.number >= chain::kFirstAdapter) {
      return lose(address, "it does not take an adapter: " + printable(trouble->reason), now);
    }
    give();  // What it had sent before counts.
    act();
    conductor_.trouble(address, *trouble, now);
  } else if (const auto* refused = std::get_if<chain::Refused>(&message)) {
    lose(address, refused->reason, now);
  } else {
    throw InputError("a gateway is not told " + chain::kind_name(message));
  }
}

/// Throws InputError where there is none of that number, or layers.
void ChainGenerator::send_adapter(const std::string& address, const chain::Unadapted& wanted) {
  const uint64_t index = wanted.adapter.number - chain::kFirstAdapter;
  if (wanted.adapter.gateway != gateway_ || index >= options_.adapters.size() ||
      wanted.layers.end > model_.config().num_layers) {
    throw InputError("an adapter is wanted that there is none of");
  }
  const auto server = servers_.find(address);
  if (server == servers_.end()) return;
  const model::Adapter& adapter = *options_.adapters[index];
  const int64_t num_values = adapter.values_of({wanted.layers.begin, wanted.layers.end}).second;
  if (num_values * static_cast<int64_t>(sizeof(float)) > AdapterShelfOptions{}.num_bytes) {
    std::vector<Id> read_by;
    for (const auto& [id, reading] : readings_) {
      if (reading.text.sequence().adapter() == index + 1) read_by.push_back(id);
    }
    for (const Id id : read_by) {
      refuse(id, "the adapter's part of a server's layers is larger than servers take");
    }
    return;
  }
  const auto [entry, is_new] =
      server->second.adapters.try_emplace({wanted.adapter.number, wanted.layers}, false);
  entry->second = !is_new;  // Once this one is there.
  if (!is_new) return;
  for (const chain::Adapt& part :
       messages_of(adapter, adapter.parameters().values_P(), wanted.adapter, chain::kAdapterVersion,
                   wanted.layers)) {
    lines_.send_patiently(server->second.bulk, part);
  }
}

/// Texts do not stand still that wait for an adapter which is on its way.
void ChainGenerator::watch_adapters(Time now) {
  std::vector<std::string> stuck;
  std::vector<std::pair<std::string, chain::Unadapted>> again;
  for (auto& [address, lines] : servers_) {
    if (lines.adapters.empty()) continue;
    for (const auto& [key, is_wanted] : lines.adapters) conductor_.hold(address, key.first, now);
    if (lines_.has_stalled(lines.bulk, now)) stuck.push_back(address);
    if (lines_.num_patient(lines.bulk) > 0) continue;
    for (const auto& [key, is_wanted] : std::exchange(lines.adapters, {})) {
      const chain::SessionId id{.gateway = gateway_, .number = key.first};
      if (is_wanted) again.emplace_back(address, chain::Unadapted{id, key.second});
    }
  }
  for (const auto& [address, wanted] : again) send_adapter(address, wanted);
  for (const std::string& address : stuck) lose(address, "it takes no adapter", now);
}

void ChainGenerator::accuse(const chain::Conductor::Accuse& accused) {
  if (options_.post.tell) options_.post.tell(chain::LiarFound{accused.server, accused.reason});
  post_.report(accused.server, accused.reason);
  const auto server = servers_.find(accused.address);
  if (server == servers_.end()) return;
  lines_.send(server->second.control, chain::Refused{accused.reason});
  lose(accused.address, "it is not used any more", clock_.now());
}

}  // namespace atl::serve
