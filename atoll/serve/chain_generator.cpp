#include "atoll/serve/chain_generator.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/random.h"
#include "atoll/chain/events.h"
#include "atoll/chain/lease.h"
#include "atoll/serve/row_batches.h"

namespace atl::serve {
namespace {

constexpr size_t kMaxQueuedBytes = size_t{1} << 30;
constexpr int kMostEvents = 256;  // Heard before what they bring is read.
constexpr int64_t kChunkTokens = 256;
constexpr Duration kRoomAgain = std::chrono::seconds(10);

/// Of a text that is longer, earlier keys may be others: that needs all layers at once.
int64_t context_of(const model::Model& model) {
  return std::min(model.config().context(), model.config().steady_positions());
}

double kv_bytes_per_layer(const model::Model& model, const std::string& digest) {
  // Of a type that was asked for it knows no tensors.
  const double share = chain::type_of(digest).empty() ? 1 : 0.5;
  const auto layer = model.kv_pool({0, 1});
  const bool is_narrow = layer->type() == at::kBFloat16;
  return static_cast<double>(layer->page_bytes()) / model::KvPool::kPagePositions *
         (is_narrow ? 1 : share);
}

chain::ConductorOptions conductor_options(const model::Model& model, const ChainOptions& options,
                                          uint64_t gateway) {
  return {.gateway = gateway,
          .num_layers = static_cast<int32_t>(model.config().num_layers),
          .digest = options.digest,
          .needs_head = options.needs_head,
          .chunk_tokens = std::min(chain::most_rows(options.precision, model.config().hidden_size),
                                   kChunkTokens),
          .max_sessions = options.max_sessions,
          .memory_patience = options.memory_patience,
          .audit_fraction = options.load ? options.audit_fraction : 0,
          .audit_seed = random_id(),
          .audits_rounded = options.load && options.rounding != nullptr,
          .kept_tokens = options.kv_secret ? kv::kChunkTokens : 0};
}

/// A server says what it likes.
int64_t whole(double bytes) { return static_cast<int64_t>(std::min(bytes, 1e18)); }

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
        const size_t size = net::frame_bytes(event);
        inbox_.push(std::move(event), size);
      })),
      lines_(*transport_, options_.post.authority),
      post_(options_.post, *transport_),
      conductor_(conductor_options(model, options_, gateway_)),
      no_layers_(model.kv_pool({})),
      kv_bytes_per_layer_(kv_bytes_per_layer(model, options_.digest)),
      draft_(options_.draft == nullptr
                 ? nullptr
                 : std::make_unique<DraftModel>(*options_.draft, model.config().vocab_size,
                                                options_.draft_kv_bytes)),
      audit_desk_(audit_desk()),
      auditor_(
          options_.load, audit_desk_.get(), [this] { inbox_.push(std::nullopt); },
          [this](const std::string& reason) {
            if (options_.post.tell) options_.post.tell(chain::AuditsFail{reason});
          }),
      thread_([this] { run(); }) {}

ChainGenerator::~ChainGenerator() {
  stops_ = true;
  inbox_.push(std::nullopt);
  thread_.join();
  if (audit_desk_) audit_desk_->stop();  // The auditor does not wait for servers.
}

void ChainGenerator::run() {
  const at::NoGradGuard no_grad;
  if (options_.kv_secret) name_chunks(*options_.kv_secret);
  while (!stops_) {
    try {
      go_on();
    } catch (const std::exception& error) {  // No memory, mostly.
      refuse_all(error.what());
    }
  }
}

void ChainGenerator::go_on() {
  Time now = clock_.now();
  const Duration rest = to_guess_.empty() ? next_tick_ - now : Duration{};
  auto event = inbox_.pop(std::max<Duration>(rest, Duration{}));
  now = clock_.now();
  for (int i = 0; event && i < kMostEvents; ++i) {
    if (*event) handle(**event, now);
    event = inbox_.pop(Duration{});
  }
  if (event && *event) handle(**event, now);
  if (inbox_.overflowed()) throw InputError("more has come than this gateway can hold");
  if (now >= post_.next_deadline()) post_.tick(now);
  learn_servers(now);
  take_news(now);
  for (const chain::Recomputed& found : auditor_.take()) conductor_.recomputed(found, now);
  ask_for_audits();
  act();
  give();
  // After what has come was heard: a server that has answered does not hang.
  if (now >= next_tick_) {
    watch_adapters(now);
    conductor_.tick(now);
    next_tick_ = now + chain::Conductor::kTick;
  }
  guess();
  act();
  report();
}

void ChainGenerator::refuse_all(const std::string& reason) {
  while (!readings_.empty()) refuse(readings_.begin()->first, reason);
  found_.clear();
}

void ChainGenerator::refuse(Id id, const std::string& reason, bool is_full) {
  const auto reading = readings_.find(id);
  if (reading == readings_.end()) return;
  {
    const MutexLock lock(mutex_);
    using Kind = decoding::Refusal::Kind;
    reading->second.text.sequence().fail({.kind = is_full ? Kind::kBusy : Kind::kUnavailable,
                                          .message = reason,
                                          .retry_after = is_full ? kRoomAgain : Duration{}});
  }
  let_go(id);
}

// ---- What comes of it.

/// The values of what has come and is wanted, one behind the other.
std::vector<ChainGenerator::Found> ChainGenerator::decoded(std::vector<float>& values_WC) {
  std::vector<Found> wanted;
  std::set<Id> distrusted;
  for (Found& found : std::exchange(found_, {})) {
    const auto reading = readings_.find(found.id);
    if (reading == readings_.end()) continue;
    const int64_t from = std::max(found.begin, reading->second.text.sequence().wanted_from());
    // What came before it could not be read: it comes again.
    if (distrusted.contains(found.id)) continue;
    const int64_t end = found.rows.end();
    found.rows = chain::cut(std::move(found.rows), from, end);
    if (found.rows.num_tokens == 0) continue;
    found.begin = found.rows.begin;
    const size_t at = values_WC.size();
    const auto width = static_cast<size_t>(model_.config().hidden_size);
    values_WC.resize(at + found.rows.num_tokens * width);
    try {
      const auto values = std::span(values_WC).subspan(at);
      chain::decode_rows(found.rows, values);
      reading->second.arrivals.add(found.session, found.begin,
                                   witness_.see(values, model_.config().hidden_size));
      wanted.push_back(std::move(found));
    } catch (const InputError&) {
      values_WC.resize(at);
      distrusted.insert(found.id);
      conductor_.distrust(found.id, clock_.now());
    }
  }
  return wanted;
}

/// What servers have drawn is given to texts, as far as it can be what was ordered.
void ChainGenerator::give_outcomes() {
  std::set<Id> over;  // Or gone back: what else came for them is of other tokens.
  for (Found& found : std::exchange(found_, {})) {
    const auto reading = readings_.find(found.id);
    if (reading == readings_.end() || over.contains(found.id)) continue;
    const Sequence& sequence = reading->second.text.sequence();
    const int64_t from = std::max(found.begin, sequence.wanted_from());
    auto& outcomes = found.rows.outcomes;
    bool is_good = outcomes.size() == found.rows.num_tokens;
    const auto outcome_at = [&](int64_t position) -> std::optional<decoding::Outcome> {
      decoding::Outcome& one = outcomes[static_cast<size_t>(position - found.rows.begin)];
      is_good =
          decoding::fits(one, sequence.order(position), vocab_size(), model_.config().hidden_size);
      return is_good ? std::optional(std::move(one)) : std::nullopt;
    };
    const int64_t count = found.rows.end() - from;
    const bool goes_on = is_good && (count <= 0 || take(reading->second, from, count, outcome_at));
    if (!goes_on) over.insert(found.id);
    if (!is_good) conductor_.distrust(found.id, clock_.now());
  }
}

/// What has come for texts goes through the final norm together, and is given to them.
void ChainGenerator::give() {
  if (found_.empty()) return;
  if (options_.needs_head) return give_outcomes();
  std::vector<float> values_WC;
  const std::vector<Found> wanted = decoded(values_WC);
  if (wanted.empty()) return;
  const int64_t width = model_.config().hidden_size;
  const at::Tensor x_1WC = at::empty({1, static_cast<int64_t>(values_WC.size()) / width, width},
                                     at::TensorOptions().dtype(at::kFloat));
  std::ranges::copy(values_WC, x_1WC.mutable_data_ptr<float>());
  const at::Tensor hidden_WC = model_.decoder().finish(x_1WC)[0];
  int64_t first = 0;
  std::vector<HiddenRows> rows;
  for (const Found& found : wanted) {
    const int64_t count = found.rows.num_tokens;
    rows.push_back({.position = found.begin,
                    .hidden_WC = hidden_WC.narrow(0, first, count),
                    .as_logits = readings_.at(found.id).text.sequence().wants_logits()});
    first += count;
  }
  std::set<Id> over;  // Or gone back: what else came for them is of other tokens.
  give_rows(model_, rows, [&](size_t index, int64_t position, const at::Tensor& values) {
    const Id id = wanted[index].id;
    if (over.contains(id)) return false;
    Reading& reading = readings_.at(id);
    const bool goes_on = take(reading, position, values.size(0), [&](int64_t at) {
      return reading.text.sequence().follow(at, values[at - position]);
    });
    if (!goes_on) over.insert(id);
    return goes_on;
  });
}

/// False: it wants nothing more of what has come.
bool ChainGenerator::take(Reading& reading, int64_t begin, int64_t count,
                          const MakeOutcome& outcome_at) {
  GuessedText& text = reading.text;
  const Sequence& sequence = text.sequence();
  const int64_t length = std::ssize(sequence.tokens());
  const int64_t guessed_length = text.length();
  const Time now = clock_.now();
  GuessedText::Taken taken;
  bool has_failed = false;
  bool is_believed = true;
  {
    const MutexLock lock(mutex_);
    try {
      for (int64_t i = 0; i < count && !taken.is_done && !taken.was_wrong; ++i) {
        const auto outcome = outcome_at(begin + i);
        is_believed = outcome.has_value();
        if (!is_believed) break;
        taken = text.take(begin + i, *outcome, now);
        if (taken.was_right) ++counts_.accepted_tokens;
      }
    } catch (const InputError& error) {
      text.sequence().fail(
          {.kind = decoding::Refusal::Kind::kUnavailable, .message = error.what()});
      has_failed = true;
    }
  }
  const int64_t new_length = std::ssize(sequence.tokens());
  counts_.made_tokens += new_length - length;
  if (has_failed) {  // What its keys and values were made of is not to be trusted.
    let_go(sequence.id());
    return false;
  }
  if (taken.is_done) {
    rest(sequence.id());
    return false;
  }
  if (new_length > length) {
    counts_.drafted_tokens += text.guess_from_itself(most_guesses(), draft_model());
    change(reading, taken.was_wrong ? new_length - 1 : guessed_length);
    if (draft_ && sequence.wants_logits()) to_guess_.insert(sequence.id());
  }
  return is_believed && !taken.was_wrong;
}

/// Its tokens and guesses are others, or more, from there on.
void ChainGenerator::change(Reading& reading, int64_t num_same) {
  reading.text.sent(clock_.now());
  reading.arrivals.go_back(num_same);
  conductor_.change(reading.text.sequence().id(), text_of(reading.text), num_same);
}

void ChainGenerator::set_aside(const chain::Conductor::SetAside& audit) {
  const auto keep = [&](uint64_t tenant, uint64_t adapter, const std::vector<int64_t>& tokens,
                        const chain::Arrivals& arrivals) {
    AuditWork work{.number = audit.number,
                   .tokens = {tokens.begin(), tokens.begin() + audit.end},
                   .adapter = adapter == 0 ? nullptr : options_.adapters.at(adapter - 1),
                   .hops = {},
                   .precision = options_.precision,
                   .said = {},
                   .arrived = arrivals.of(audit.session),
                   .arrived_from = arrivals.begin()};
    if (audit.num_rounded > 0) {
      const kv::ChunkNames& names = chunk_names_.at(adapter);
      const auto known = std::span(tokens).first(static_cast<size_t>(audit.num_rounded));
      work.known = {.group = names.group_of(tenant),
                    .chunks = names.chunks_of(tenant, known),
                    .levels = audit.levels};
    }
    auditor_.set_aside(std::move(work));
  };
  const auto reading = readings_.find(audit.key);
  const auto over = over_.find(audit.key);
  if (reading != readings_.end()) {
    const Sequence& sequence = reading->second.text.sequence();
    keep(sequence.tenant(), sequence.adapter(), sequence.tokens(), reading->second.arrivals);
  } else if (over != over_.end()) {
    const Over& text = over->second;
    keep(text.tenant, text.adapter, text.tokens, text.arrivals);
  }
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
        this->refuse(refuse->key, refuse->reason, refuse->is_full);
      } else if (const auto* audit = std::get_if<chain::Conductor::SetAside>(&action)) {
        set_aside(*audit);
      } else if (const auto* heard = std::get_if<chain::Conductor::Recompute>(&action)) {
        auditor_.add(heard->number, heard->hops, heard->said);
      } else if (const auto* gone = std::get_if<chain::Conductor::Gone>(&action)) {
        resting_.erase(gone->key);
      } else if (const auto* drop = std::get_if<chain::Conductor::Drop>(&action)) {
        auditor_.forget(drop->number);
      } else if (const auto* keep = std::get_if<chain::Conductor::KeepChunks>(&action)) {
        tell_of_chunks(*keep);
      } else if (const auto* restore = std::get_if<chain::Conductor::RestoreChunks>(&action)) {
        tell_of_chunks(*restore);
      } else if (std::holds_alternative<chain::Conductor::ForgetKept>(action)) {
        if (options_.new_kv_secret) name_chunks(options_.new_kv_secret());
      } else if (const auto* accused = std::get_if<chain::Conductor::Accuse>(&action)) {
        accuse(*accused);
      }
    }
  }
  over_.clear();
}

void ChainGenerator::report() {
  counts_.num_waiting = conductor_.num_waiting();
  counts_.num_running = conductor_.num_sessions() - counts_.num_waiting;
  counts_.recoveries = conductor_.recoveries();
  counts_.audited_tokens = conductor_.num_audited();
  counts_.liars = std::ssize(conductor_.liars());
  counts_.kv_bytes = whole(servers_kv_bytes_) + (draft_ ? draft_->kv_bytes() : 0);
  counts_.kv_capacity_bytes =
      whole(servers_kv_capacity_bytes_) + (draft_ ? draft_->kv_capacity_bytes() : 0);
  const MutexLock lock(mutex_);
  set_status(counts_);
}

}  // namespace atl::serve
