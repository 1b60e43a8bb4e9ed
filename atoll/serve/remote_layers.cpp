// Micro-batches on their way through servers.
#include "atoll/serve/remote_layers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "atoll/base/error.h"
#include "atoll/base/random.h"
#include "atoll/chain/lease.h"
#include "atoll/chain/route.h"
#include "atoll/serve/adapter_shelf.h"
#include "atoll/serve/block_trainer.h"
#include "atoll/serve/lesson_values.h"

namespace atl::serve {
namespace {

constexpr Duration kNap = std::chrono::milliseconds(20);
constexpr size_t kMaxQueuedBytes = size_t{1} << 30;
/// Of lessons that a server has at once, but for a single one: it has others' as well.
constexpr int64_t kMaxAskedBytes = int64_t{128} << 20;

}  // namespace

RemoteLayers::RemoteLayers(const weights::ModelConfig& model, RemoteLayersOptions options,
                           const net::TransportFactory& make_transport, const Clock& clock)
    : model_(model),
      options_(std::move(options)),
      clock_(clock),
      gateway_(random_id()),
      inbox_(kMaxQueuedBytes),
      transport_(make_transport([this](net::Event event) {
        const auto* const received = std::get_if<net::Received>(&event);
        const size_t bytes = received != nullptr ? received->frame.size() : 0;
        inbox_.push(std::move(event), bytes);
      })),
      lines_(*transport_, options_.post.authority),
      post_(options_.post, *transport_) {}

RemoteLayers::~RemoteLayers() { inbox_.close(); }

std::vector<at::Tensor> RemoteLayers::learn(std::span<const at::Tensor> inputs_BTC,
                                            const model::Adapter& adapter, const Turn& turn) {
  const at::NoGradGuard no_grad;
  std::vector<Trip> trips;
  for (size_t i = 0; i < inputs_BTC.size(); ++i) {
    trips.push_back({.index = i, .inputs_BTC = {{0, inputs_BTC[i]}}});
    trips.back().gradients_P = at::empty_like(adapter.parameters().values_P());
  }
  drive(trips, adapter, &turn);
  std::vector<at::Tensor> dinputs_BTC;
  for (const Trip& trip : trips) {
    if (!adapter.config().is_prompt()) adapter.parameters().gradients_P().add_(trip.gradients_P);
    dinputs_BTC.push_back(trip.dy_BTC);
  }
  return dinputs_BTC;
}

at::Tensor RemoteLayers::read(const at::Tensor& x_BTC, const model::Adapter& adapter) {
  const at::NoGradGuard no_grad;
  std::vector<Trip> trips(1);
  trips[0].inputs_BTC[0] = x_BTC;
  drive(trips, adapter, nullptr);
  return trips[0].inputs_BTC.at(static_cast<int32_t>(model_.num_layers));
}

/// Until all are over. Without `turn` they do not come back.
void RemoteLayers::drive(std::vector<Trip>& trips, const model::Adapter& adapter,
                         const Turn* turn) {
  note_adapter(adapter);
  adapter_ = &adapter;
  while (!std::ranges::all_of(trips, &Trip::is_over)) {
    hear_all(trips);
    const Time now = clock_.now();
    if (now >= post_.next_deadline()) post_.tick(now);
    look_after_servers(now, trips);
    int64_t num_under_way = 0;
    bool has_route = true;
    for (Trip& trip : trips) {
      if (trip.is_over || num_under_way == options_.in_flight) continue;
      ++num_under_way;
      if (!trip.asked) has_route = go_on(trip, trips, turn) && has_route;
    }
    wait_for_servers(has_route, now);
    if (std::ranges::all_of(trips, &Trip::is_over)) break;
    if (const auto event = inbox_.pop(kNap)) handle(*event, trips);
  }
}

/// All that has come: who has answered is not silent.
void RemoteLayers::hear_all(std::vector<Trip>& trips) {
  while (const auto event = inbox_.pop(Duration::zero())) handle(*event, trips);
  if (!failure_.empty()) throw InputError(failure_);
  if (inbox_.overflowed()) throw InputError("more has come from servers than can be held");
}

/// Whatever servers have of another one is old.
void RemoteLayers::note_adapter(const model::Adapter& adapter) {
  const at::Tensor& values_P = adapter.parameters().values_P();
  if (sent_P_.defined() && at::equal(sent_P_, values_P)) return;
  sent_P_ = values_P.clone();
  ++version_;
  for (auto& [address, server] : servers_) server.adapted.clear();
}

/// The next lesson of a micro-batch. False where no server has the layers.
bool RemoteLayers::go_on(Trip& trip, const std::vector<Trip>& trips, const Turn* turn) {
  const auto num_layers = static_cast<int32_t>(model_.num_layers);
  if (!trip.goes_back) {
    if (trip.at == num_layers) {
      trip.is_over = turn == nullptr;
      if (trip.is_over) return true;
      turn_back(trip, *turn);
    } else {
      const auto hop = next_hop(trip.at, num_layers, trip);
      if (!hop) return false;
      ask(trip, *hop, false, trips);
      return true;
    }
  }
  if (trip.at == 0) {
    trip.is_over = true;
    trip.inputs_BTC.clear();
    return true;
  }
  // The last span that it has not come back through; where that has no single server any more, its
  // first part is read again, so that there is a shorter one.
  const int32_t begin = std::prev(trip.inputs_BTC.lower_bound(trip.at))->first;
  const auto hop = next_hop(begin, trip.at, trip);
  if (!hop) return false;
  ask(trip, *hop, hop->layers.end == trip.at, trips);
  return true;
}

/// Nobody listens meanwhile: whatever that takes, no server was silent for so long.
void RemoteLayers::turn_back(Trip& trip, const Turn& turn) {
  const auto num_layers = static_cast<int32_t>(model_.num_layers);
  const Time begin = clock_.now();
  trip.dy_BTC = turn(trip.index, trip.inputs_BTC.at(num_layers));
  trip.inputs_BTC.erase(num_layers);
  trip.goes_back = true;
  const Duration took = clock_.now() - begin;
  for (auto& [address, server] : servers_) {
    server.heard += took;
    server.answered += took;
  }
}

std::vector<chain::Candidate> RemoteLayers::candidates() const {
  std::vector<chain::Candidate> found;
  for (const chain::Lease& lease : post_.servers_of(options_.digest)) {
    if (lease.state != chain::LeaseState::kServing || avoided_.contains(lease.address)) continue;
    found.push_back({.address = lease.address,
                     .layers = lease.layers,
                     .layers_per_s = lease.layers_per_s,
                     .token_layers_per_s = lease.token_layers_per_s});
  }
  return found;
}

std::optional<chain::Hop> RemoteLayers::next_hop(int32_t begin, int32_t end, const Trip& trip) {
  const auto all = candidates();
  const at::Tensor& any = trip.inputs_BTC.begin()->second;
  chain::RouteQuery query{.layers = {0, static_cast<int32_t>(model_.num_layers)},
                          .num_prompt = any.size(0) * any.size(1),
                          .num_answer = 0,
                          .delay = [](const auto&, const auto&) { return 0.0; }};
  const bool is_there = !route_.empty() && std::ranges::all_of(route_, [&](const chain::Hop& hop) {
    return std::ranges::any_of(all, [&](const chain::Candidate& server) {
      return server.address == hop.address && server.layers.holds(hop.layers);
    });
  });
  if (!is_there) route_ = chain::choose_route(all, query).value_or(std::vector<chain::Hop>());
  const auto hop =
      std::ranges::find(route_, begin, [](const auto& each) { return each.layers.begin; });
  if (hop != route_.end() && hop->layers.end <= end) return *hop;
  query.layers = {begin, end};
  const auto part = chain::choose_route(all, query);
  if (!part) return std::nullopt;
  return part->front();
}

int64_t RemoteLayers::Asked::bytes() const {
  return made_BTC.numel() * static_cast<int64_t>(sizeof(float)) * (goes_back ? 2 : 1);
}

/// Whether that would be more than it is asked for at once.
bool RemoteLayers::is_busy(const std::string& address, int64_t bytes,
                           const std::vector<Trip>& trips) {
  int64_t before = 0;
  for (const Trip& trip : trips) {
    if (trip.asked && trip.asked->address == address) before += trip.asked->bytes();
  }
  return before > 0 && before + bytes > kMaxAskedBytes;
}

/// Or not yet, where it has much to do.
void RemoteLayers::ask(Trip& trip, const chain::Hop& hop, bool goes_back,
                       const std::vector<Trip>& trips) {
  const at::Tensor& x_BTC = trip.inputs_BTC.at(hop.layers.begin);
  Asked asked{.number = num_lessons_ + 1,
              .address = hop.address,
              .layers = hop.layers,
              .goes_back = goes_back,
              .made_BTC = at::empty_like(x_BTC)};
  if (asked.bytes() > BlockTrainerOptions{}.waiting_bytes) {
    throw InputError(
        fmt::format("a micro-batch of {} rows of {} tokens is more than servers hold; "
                    "give a lower train.micro_batch_rows",
                    x_BTC.size(0), x_BTC.size(1)));
  }
  if (is_busy(hop.address, asked.bytes(), trips)) return;
  Server& server = call(hop.address);
  // It had nothing to say before.
  server.heard = std::max(server.heard, clock_.now());
  server.answered = std::max(server.answered, clock_.now());
  // Of a soft prompt no layer has a part; of others some have none.
  const bool is_adapted = places_of(hop.layers).second > 0;
  if (is_adapted) send_adapter(server, hop.layers);
  ++num_lessons_;
  const chain::SessionId id{.gateway = gateway_, .number = num_lessons_};
  const auto send_rows = [&](const at::Tensor& values_BTC, bool is_gradient) {
    for (chain::Rows& rows : rows_of(values_BTC, options_.precision)) {
      lines_.send_patiently(
          server.line,
          chain::LessonRows{.lesson = id, .is_gradient = is_gradient, .rows = std::move(rows)});
    }
  };
  send_rows(x_BTC, false);
  if (goes_back) send_rows(trip.dy_BTC, true);
  lines_.send_patiently(
      server.line,
      chain::Lesson{.lesson = id,
                    .adapter = {.gateway = gateway_, .number = is_adapted ? kAdapter : 0},
                    .version = version_,
                    .layers = hop.layers,
                    .goes_back = goes_back,
                    .num_texts = static_cast<uint32_t>(x_BTC.size(0)),
                    .num_tokens = static_cast<uint32_t>(x_BTC.size(1)),
                    .precision = options_.precision});
  trip.asked = std::move(asked);
}

void RemoteLayers::send_adapter(Server& server, chain::Span layers) {
  const int64_t bytes = places_of(layers).second * static_cast<int64_t>(sizeof(float));
  if (bytes > AdapterShelfOptions{}.num_bytes) {
    throw InputError(
        fmt::format("the adapter's part of {} has {} bytes and servers hold {}; give a lower "
                    "adapter.rank or fewer adapter.targets, or have servers with fewer layers",
                    chain::text_of(layers), bytes, AdapterShelfOptions{}.num_bytes));
  }
  if (!server.adapted.insert(layers).second) return;
  const chain::SessionId id{.gateway = gateway_, .number = kAdapter};
  for (const chain::Adapt& part : messages_of(*adapter_, sent_P_, id, version_, layers)) {
    lines_.send_patiently(server.line, part);
  }
}

/// All of its answer is here.
void RemoteLayers::take_answer(Trip& trip) {
  const Asked asked = *std::exchange(trip.asked, std::nullopt);
  trip.fails_since.reset();
  servers_.at(asked.address).num_forgotten = 0;
  if (!asked.goes_back) {
    trip.inputs_BTC[asked.layers.end] = asked.made_BTC;
    if (!trip.goes_back) trip.at = asked.layers.end;
    return;
  }
  trip.dy_BTC = asked.made_BTC;
  trip.at = asked.layers.begin;
  if (trip.at > 0) trip.inputs_BTC.erase(trip.at);
}

}  // namespace atl::serve
