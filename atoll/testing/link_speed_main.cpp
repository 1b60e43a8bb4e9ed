// How fast the exchange of a round fills a line: the real session over the real transport, without
// training. bench/link_speed.py starts one process per host.
//
//   atoll-link-speed coordinate HOST:PORT NUM_ISLANDS
//   atoll-link-speed island COORDINATOR LISTEN NAME CODEC scatter|gather MILLION_VALUES ROUNDS
//
// With ATOLL_AUTHORITY=FOLDER (of `atoll create`) connections are encrypted; each process then
// makes its own certificate. The coordinator prints its address. An island prints a line of JSON
// per round: encoded bytes received from the others, seconds from begin() until the mean was whole,
// processor seconds.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/process.h"
#include "atoll/base/random.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/session.h"
#include "atoll/coordinator/coordinator_server.h"
#include "atoll/identity/authority.h"
#include "atoll/net/tcp_transport.h"

namespace atl::collective {
namespace {

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return of(use.ru_utime) + of(use.ru_stime);
}

/// Null without an authority: in the clear.
std::shared_ptr<net::Trust> trust_of(identity::Role role, const std::string& name) {
  const char* const folder = std::getenv("ATOLL_AUTHORITY");
  if (folder == nullptr) return nullptr;
  const auto authority = identity::Authority::load(folder);
  const auto key = identity::Key::generate();
  const auto certificate =
      authority.sign(key.request(), {authority.fingerprint(), role, name}, std::chrono::hours(1),
                     identity::wall_time_of(wall_time()));
  if (!certificate) throw InputError(certificate.error().message);
  return std::make_shared<net::Trust>(
      identity::Credentials{authority.certificate_pem(), *certificate, key.pem()});
}

net::TransportFactory transports(const std::shared_ptr<net::Trust>& trust, const Clock& clock) {
  return [trust, &clock](net::Transport::Sink sink) {
    return net::make_tcp_transport({.trust = trust, .insecure = true}, clock, std::move(sink));
  };
}

int fail(const std::string& reason) {
  fmt::print(stderr, "atoll-link-speed: {}\n", reason);
  return 1;
}

int coordinate(const std::string& address, int64_t num_islands, const Clock& clock) {
  const auto trust = trust_of(identity::Role::kCoordinator, "coordinator");
  swarm::CoordinatorServer server({{.options = {.run = "speed", .min_replicas = num_islands},
                                    .authority = {.fingerprint = trust ? trust->run() : ""}}},
                                  transports(trust, clock), clock);
  const auto bound = server.listen(address);
  if (!bound) return fail(bound.error().message);
  fmt::print("{}\n", *bound);
  std::fflush(stdout);
  const auto ended = server.run({});
  return ended ? 0 : fail(ended.error().message);
}

/// One round; false when the run has failed.
bool do_round(Session& session, Contribution contribution, const Clock& clock) {
  const Time begin = clock.now();
  const double cpu_begin = cpu_seconds();
  Time whole{};
  double cpu_whole = 0;
  contribution.prepare = [&](std::span<const float> /*mean*/, std::span<const float> /*own*/) {
    whole = clock.now();
    cpu_whole = cpu_seconds();
    return Digest{};  // What follows the exchange is not measured.
  };
  const int64_t round = contribution.round;
  session.begin(std::move(contribution));
  const auto commit = session.wait(round);
  if (!commit) {
    fail(commit.error().message);
    return false;
  }
  fmt::print(R"({{"round": {}, "bytes_received": {}, "seconds": {:.6f}, "commit_seconds": {:.6f}, )"
             R"("cpu_seconds": {:.6f}}})"
             "\n",
             round, commit->bytes_received, seconds(whole - begin), seconds(clock.now() - begin),
             cpu_whole - cpu_begin);
  std::fflush(stdout);
  return true;
}

int join(const std::vector<std::string>& words, const Clock& clock) {
  const auto codec = codec::make_codec(words[3]);
  const auto topology = words[4] == "gather" ? Topology::kGather : Topology::kScatter;
  std::vector<float> values(static_cast<size_t>(std::stod(words[5]) * 1e6));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(random_uniform(1, words[2].size(), i) - 0.5);
  }
  auto session =
      Session::connect({.coordinator = words[0], .listen = words[1], .name = words[2]},
                       transports(trust_of(identity::Role::kIsland, words[2]), clock), clock);
  if (!session) return fail(session.error().message);
  if (const auto ready = (*session)->ready({.checkpoints = {{0, "p"}}}); !ready) {
    return fail(ready.error().message);
  }
  for (int64_t round = 0; round < std::stoll(words[6]); ++round) {
    const Contribution contribution{.round = round,
                                    .step = round + 1,
                                    .weight = 1,
                                    .values = values,
                                    .codec = codec.get(),
                                    .topology = topology};
    if (!do_round(**session, contribution, clock)) return 1;
  }
  const auto left = (*session)->leave();
  return left ? 0 : fail(left.error().message);
}

}  // namespace
}  // namespace atl::collective

int main(int argc, char** argv) {
  atl::keep_freed_memory();  // As the programs do.
  const std::vector<std::string> words(argv + 1, argv + argc);
  const atl::SystemClock clock;
  try {
    if (words.size() == 3 && words[0] == "coordinate") {
      return atl::collective::coordinate(words[1], std::stoll(words[2]), clock);
    }
    if (words.size() == 8 && words[0] == "island") {
      return atl::collective::join({words.begin() + 1, words.end()}, clock);
    }
  } catch (const std::exception& error) {
    return atl::collective::fail(error.what());
  }
  return atl::collective::fail(
      "usage: coordinate HOST:PORT NUM_ISLANDS | island COORDINATOR "
      "LISTEN NAME CODEC scatter|gather MILLION_VALUES ROUNDS");
}
