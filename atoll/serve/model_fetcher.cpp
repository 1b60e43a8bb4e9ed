#include "atoll/serve/model_fetcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/name.h"
#include "atoll/base/progress.h"
#include "atoll/chain/lease.h"
#include "atoll/chain/peer_lines.h"
#include "atoll/chain/wire.h"
#include "atoll/swarm/inbox.h"

namespace atl::serve {
namespace {

namespace fs = std::filesystem;
using chain::PartFetch;

constexpr Duration kNap = std::chrono::milliseconds(20);
constexpr Duration kHearing = std::chrono::seconds(5);  // Of what the swarm has.
constexpr size_t kMaxQueuedBytes = size_t{256} << 20;
constexpr size_t kMaxManifestPieces = 64;

/// Where a model is kept: its name may be any text.
std::string folder_name(const ModelFetcher::Found& model) {
  std::string name = model.name;
  for (char& each : name) {
    if (!is_valid_name({&each, 1})) each = '_';
  }
  return fmt::format("{}-{}", name, model.digest.substr(0, 12));
}

/// Whether that is what its user means.
bool is_called(const ModelFetcher::Found& model, const std::string& name) {
  return name.empty() || model.name == name;
}

/// Models of the cache.
std::vector<ModelFetcher::Found> kept_in(const fs::path& cache) {
  std::vector<ModelFetcher::Found> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(cache, none)) {
    const std::string name = entry.path().filename().string();
    const size_t dash = name.rfind('-');
    if (dash == std::string::npos || !fs::exists(entry.path() / "manifest", none)) continue;
    found.push_back(
        {.name = name.substr(0, dash), .digest = weights::PartStore::digest_in(entry.path())});
  }
  return found;
}

}  // namespace

/// To the coordinator and to servers that have some of the model.
class ModelFetcher::Lines {
 public:
  /// `digest` empty: of all models.
  Lines(const ModelFetcher& owner, const std::string& digest)
      : options_(owner.options_),
        clock_(owner.clock_),
        fetch_(digest),
        transport_(owner.make_transport_([this](net::Event event) {
          const size_t size = net::frame_bytes(event);
          inbox_.push(std::move(event), size);
        })),
        lines_(*transport_, options_.post.authority),
        post_(watching(options_.post, digest), *transport_) {}

  PartFetch& fetch() { return fetch_; }
  const chain::DirectoryPost& post() const { return post_; }

  /// Until all is there that the fetch wants. False: stopped.
  bool run(const Stops& stops, const std::function<void(const chain::Piece&)>& keep) {
    while (act(keep), !fetch_.is_done()) {
      if (stops()) return false;
      turn();
      fetch_.tick(clock_.now());
    }
    return true;
  }

  /// What happens in a moment.
  void turn() {
    const Time now = clock_.now();
    if (now >= post_.next_deadline()) post_.tick(now);
    if (servers_version_ != post_.servers_version()) {
      servers_version_ = post_.servers_version();
      std::vector<std::string> addresses;
      for (const chain::Lease& lease : post_.servers()) {
        if (lease.name != options_.own_name) addresses.push_back(lease.address);
      }
      fetch_.set_servers(addresses, now);
    }
    if (const auto event = inbox_.pop(kNap)) handle(*event);
    if (inbox_.overflowed()) throw InputError("more has come than was asked for");
  }

 private:
  static chain::DirectoryPostOptions watching(chain::DirectoryPostOptions options,
                                              const std::string& digest) {
    options.watches = digest;
    return options;
  }

  void handle(const net::Event& event) {
    const Time now = clock_.now();
    const auto line = std::visit([](const auto& any) { return any.connection; }, event);
    if (post_.owns(line)) return post_.handle(event, now);
    lines_.note(event);
    const auto server = servers_.find(line);
    if (server == servers_.end()) return;  // It was given up.
    const std::string address = server->second;
    if (std::holds_alternative<net::Opened>(event)) return fetch_.opened(address, now);
    if (const auto* received = std::get_if<net::Received>(&event)) return hear(address, *received);
    if (!std::holds_alternative<net::Lost>(event)) return;
    servers_.erase(server);
    fetch_.lost(address, now);
  }

  void hear(const std::string& address, const net::Received& received) {
    try {
      chain::Message message = chain::decode(received.frame);
      if (auto* piece = std::get_if<chain::Piece>(&message)) {
        return fetch_.received(address, std::move(*piece), clock_.now());
      }
      const auto* refused = std::get_if<chain::Refused>(&message);
      throw InputError(refused != nullptr ? printable(refused->reason)
                                          : "it says what nobody asked");
    } catch (const InputError& error) {
      options_.log(fmt::format("{} sends no piece of the model: {}", address, error.what()));
      lines_.close(received.connection);  // Then it is lost, and called again later.
    }
  }

  void act(const std::function<void(const chain::Piece&)>& keep) {
    for (PartFetch::Action& action : fetch_.take()) {
      if (const auto* call = std::get_if<PartFetch::Call>(&action)) {
        servers_[lines_.call(call->address, net::Plane::kBulk)] = call->address;
      } else if (const auto* ask = std::get_if<PartFetch::Ask>(&action)) {
        if (const auto line = line_to(ask->address)) lines_.send(*line, ask->want);
      } else if (const auto* hang_up = std::get_if<PartFetch::HangUp>(&action)) {
        const auto line = line_to(hang_up->address);
        if (!line) continue;
        lines_.close(*line);
        servers_.erase(*line);
      } else if (const auto* kept = std::get_if<PartFetch::Keep>(&action)) {
        keep(kept->piece);
      } else {
        options_.log(std::get<PartFetch::Tell>(action).sentence);
      }
    }
  }

  std::optional<net::ConnectionId> line_to(const std::string& address) const {
    const auto found = std::ranges::find_if(
        servers_, [&](const auto& server) { return server.second == address; });
    if (found == servers_.end()) return std::nullopt;
    return found->first;
  }

  const ModelFetcherOptions& options_;
  const Clock& clock_;
  PartFetch fetch_;
  swarm::Inbox<net::Event> inbox_{kMaxQueuedBytes};
  std::unique_ptr<net::Transport> transport_;
  chain::PeerLines lines_;
  chain::DirectoryPost post_;
  uint64_t servers_version_ = 0;
  std::map<net::ConnectionId, std::string> servers_;  // Addresses, of those that were called.
};

ModelFetcher::ModelFetcher(ModelFetcherOptions options, net::TransportFactory make_transport,
                           const Clock& clock)
    : options_(std::move(options)), make_transport_(std::move(make_transport)), clock_(clock) {}

std::optional<ModelFetcher::Found> ModelFetcher::find(const std::string& name, bool any_type,
                                                      const Stops& stops) {
  Lines lines(*this, "");
  const Time begin = clock_.now();
  bool is_told = false;
  while (!stops()) {
    lines.turn();
    std::map<std::string, std::string> names;  // By digest.
    for (const chain::Lease& lease : lines.post().servers()) {
      if (lease.name == options_.own_name) continue;
      names[any_type ? chain::files_of(lease.digest) : lease.digest] = lease.model;
    }
    const bool others = !names.empty();
    std::string known;
    for (const auto& [digest, model] : names) {
      const std::string type = chain::type_of(digest);
      known +=
          fmt::format("{}'{}' ({}{}{})", known.empty() ? "" : ", ", printable(model),
                      printable(digest.substr(0, 8)), type.empty() ? "" : ", ", printable(type));
    }
    std::erase_if(names, [&](const auto& each) {
      return !is_called({.name = each.second, .digest = each.first}, name);
    });
    if (names.size() == 1) return Found{names.begin()->second, names.begin()->first};
    if (names.size() > 1) {
      throw InputError(fmt::format(
          "the swarm serves several models, say which, and --dtype where they differ in that: {}",
          known));
    }
    if (clock_.now() - begin < kHearing) continue;
    if (others) {
      throw InputError(fmt::format(
          "'{}' is neither a model on this machine nor one of the swarm's: {}", name, known));
    }
    std::vector<Found> kept;
    if (!options_.cache.empty()) kept = kept_in(options_.cache);
    std::erase_if(kept, [&](const Found& each) { return !is_called(each, name); });
    if (kept.size() == 1) {
      options_.log(fmt::format("no server of the swarm has a model yet; '{}' was fetched before",
                               kept.front().name));
      return kept.front();
    }
    if (!std::exchange(is_told, true)) {
      const std::string what =
          name.empty() ? "a model" : fmt::format("'{}', which is no model on this machine,", name);
      options_.log(
          fmt::format("no server of the swarm has {} yet: waiting for one with its files", what));
    }
  }
  return std::nullopt;
}

std::optional<weights::ModelManifest> ModelFetcher::manifest_of(const Found& model,
                                                                const Stops& stops) {
  const std::string digest = chain::files_of(model.digest);
  if (!options_.cache.empty()) {
    auto kept = weights::PartStore::manifest_in(options_.cache / folder_name(model), digest);
    if (kept) return kept;
  }
  Lines lines(*this, digest);
  Bytes hashes;
  lines.fetch().want_hashes(chain::kManifestPart, digest_from_hex(digest), 0, clock_.now());
  if (!lines.run(stops, [&](const chain::Piece& piece) { hashes = piece.bytes; })) return {};
  const std::vector<Digest> digests = digests_in(hashes);
  if (digests.size() > kMaxManifestPieces) {
    throw InputError(fmt::format("the model's manifest has {} MiB, and {} is the most",
                                 digests.size(), kMaxManifestPieces));
  }
  std::vector<uint32_t> missing;
  for (uint32_t i = 0; i < digests.size(); ++i) missing.push_back(i);
  std::map<int64_t, Bytes> pieces;
  lines.fetch().want_pieces(chain::kManifestPart, digests, missing, clock_.now());
  const auto keep = [&](const chain::Piece& piece) { pieces[piece.piece] = piece.bytes; };
  if (!lines.run(stops, keep)) return {};
  Bytes encoded;
  for (const auto& [index, bytes] : pieces) {
    encoded.insert(encoded.end(), bytes.begin(), bytes.end());
  }
  return weights::decode_manifest(encoded);
}

bool ModelFetcher::open(const Found& model, const Stops& stops) {
  auto manifest = manifest_of(model, stops);
  if (!manifest) return false;
  digest_ = chain::files_of(model.digest);
  store_ = std::make_unique<weights::PartStore>(options_.cache / folder_name(model),
                                                *std::move(manifest));
  return true;
}

std::shared_ptr<const weights::ModelParts> ModelFetcher::fetch(int32_t begin, int32_t end,
                                                               bool with_head, const Stops& stops) {
  std::vector<int32_t> parts(static_cast<size_t>(end - begin));
  std::iota(parts.begin(), parts.end(), begin);
  if (with_head) parts.push_back(manifest().num_parts() - 1);
  const std::string what =
      fmt::format("layers {} to {}{}", begin, end - 1, with_head ? " and the head" : "");
  require_room(parts, what);
  double total = 0;
  for (const int32_t part : parts) total += static_cast<double>(store_->num_bytes(part));
  std::unique_ptr<Lines> lines;  // Made when something is missing.
  weights::ModelParts::Hashes hashes(static_cast<size_t>(manifest().num_parts()));
  ProgressBar bar(what, total, clock_);
  double done = 0;
  for (const int32_t part : parts) {
    double own = 0;
    const auto kept = [&] {
      own += static_cast<double>(kTreeChunkBytes);
      bar.update(done + std::min(own, static_cast<double>(store_->num_bytes(part))), "fetched");
    };
    if (!fetch_part(lines, part, stops, kept)) return nullptr;
    done += static_cast<double>(store_->num_bytes(part));
    bar.update(done);
    hashes[static_cast<size_t>(part)] = store_->hashes(part);
  }
  return std::make_shared<const weights::ModelParts>(manifest(), std::move(hashes),
                                                     store_->files(parts));
}

bool ModelFetcher::fetch_part(std::unique_ptr<Lines>& lines, int32_t part, const Stops& stops,
                              const std::function<void()>& kept) {
  const auto made = [&]() -> Lines& {
    if (!lines) lines = std::make_unique<Lines>(*this, digest_);
    return *lines;
  };
  if (store_->hashes(part).empty()) {
    made().fetch().want_hashes(part, manifest().parts[static_cast<size_t>(part)],
                               weights::num_pieces(store_->num_bytes(part)), clock_.now());
    const auto keep = [&](const chain::Piece& piece) { store_->keep_hashes(part, piece.bytes); };
    if (!made().run(stops, keep)) return false;
  }
  // Looked at again when all has come: another process may write the same files.
  while (true) {
    const std::vector<uint32_t> missing = store_->missing(part);
    if (missing.empty()) break;
    made().fetch().want_pieces(part, store_->hashes(part), missing, clock_.now());
    const auto keep = [&](const chain::Piece& piece) {
      store_->write(part, static_cast<uint32_t>(piece.piece), piece.bytes);
      kept();
    };
    if (!made().run(stops, keep)) return false;
  }
  store_->finish(part);
  return true;
}

/// Rather than after hours.
void ModelFetcher::require_room(std::span<const int32_t> parts, const std::string& what) const {
  uint64_t wanted = 0;
  std::error_code none;
  for (const int32_t part : parts) {
    if (!fs::exists(store_->file(part), none)) wanted += store_->num_bytes(part);
  }
  const fs::space_info space = fs::space(store_->folder(), none);
  if (none || space.available >= wanted) return;
  throw InputError(
      fmt::format("{} have {}, and '{}' has room for {} (--model-cache says where they are kept)",
                  what, format_bytes(static_cast<double>(wanted)), store_->folder().string(),
                  format_bytes(static_cast<double>(space.available))));
}

}  // namespace atl::serve
