#include "atoll/chain/route.h"

#include <gtest/gtest.h>

#include <limits>

#include "atoll/base/random.h"

namespace atl::chain {
namespace {

constexpr Span kAll{0, 6};

RouteQuery query_of(int64_t num_prompt = 10, int64_t num_answer = 10) {
  return {.layers = kAll,
          .from = {},
          .to = {},
          .num_prompt = num_prompt,
          .num_answer = num_answer,
          .delay = [](const std::string& from, const std::string& to) {
            return from.empty() || to.empty() ? 0.01 : 0.02;
          }};
}

Candidate server(const std::string& address, Span layers, double layers_per_s = 100) {
  return {.address = address,
          .layers = layers,
          .layers_per_s = layers_per_s,
          .token_layers_per_s = 10 * layers_per_s};
}

std::string text_of(const std::optional<std::vector<Hop>>& route) {
  if (!route) return "none";
  std::string text;
  for (const Hop& hop : *route) text += hop.address;
  return text;
}

/// The least of all ways to go from layer to layer.
double soonest(const std::vector<Candidate>& servers, const RouteQuery& query, int32_t begin,
               std::vector<Hop>& hops) {
  double best = std::numeric_limits<double>::infinity();
  if (begin == query.layers.end) {
    const auto has_head = [&](const Hop& hop) {
      return std::ranges::find(servers, hop.address, &Candidate::address)->has_head;
    };
    if (query.needs_head && (!has_head(hops.front()) || !has_head(hops.back()))) return best;
    return seconds_by(hops, servers, query);
  }
  for (const Candidate& each : servers) {
    if (each.layers.begin > begin || each.layers.end <= begin) continue;
    hops.push_back({.address = each.address, .layers = {begin, each.layers.end}});
    best = std::min(best, soonest(servers, query, each.layers.end, hops));
    hops.pop_back();
  }
  return best;
}

TEST(Route, IsTheSoonestOfAll) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    uint64_t drawn = 0;
    const auto random = [&](uint64_t below) {
      return static_cast<int32_t>(random_bits(seed, 1, ++drawn) % below);
    };
    std::vector<Candidate> servers;
    for (char name = 'a'; name < 'h'; ++name) {
      const int32_t begin = random(6);
      Candidate one =
          server(std::string(1, name), {begin, begin + 1 + random(6 - begin)}, 1 + random(200));
      one.num_sessions = random(20);
      one.is_full = random(3) == 0;
      one.has_head = random(2) == 0;
      servers.push_back(one);
    }
    RouteQuery query = query_of(random(500), random(100));
    query.needs_head = random(2) == 0;
    std::vector<Hop> hops;
    const double best = soonest(servers, query, 0, hops);
    const auto route = choose_route(servers, query);
    ASSERT_EQ(route.has_value(), best < std::numeric_limits<double>::infinity());
    if (!route) continue;
    EXPECT_NEAR(seconds_by(*route, servers, query), best, 1e-9);
  }
}

TEST(Route, WhoHasNoRoomIsPassedOver) {
  std::vector<Candidate> servers{server("a", kAll, 120), server("b", kAll, 100)};
  EXPECT_EQ(text_of(choose_route(servers, query_of())), "a");
  servers[0].is_full = true;
  EXPECT_EQ(text_of(choose_route(servers, query_of())), "b");
  servers.pop_back();
  EXPECT_EQ(text_of(choose_route(servers, query_of())), "a") << "rather than nobody";
}

TEST(Route, WhereItsEndsNeedAHeadThoseHaveOne) {
  std::vector<Candidate> servers{server("a", {0, 3}, 1000), server("b", {3, 6}, 1000),
                                 server("c", kAll, 1)};
  RouteQuery query = query_of();
  query.needs_head = true;
  EXPECT_EQ(text_of(choose_route(servers, query)), "none");
  EXPECT_FALSE(have_heads(servers, kAll));
  servers[2].has_head = true;
  EXPECT_EQ(text_of(choose_route(servers, query)), "c");
  servers[0].has_head = servers[1].has_head = true;
  EXPECT_EQ(text_of(choose_route(servers, query)), "ab");
  EXPECT_TRUE(have_heads(servers, kAll));
  servers[0].has_head = false;
  query.from = "x";  // In the middle of a chain only its end counts.
  EXPECT_EQ(text_of(choose_route(servers, query)), "ab");
}

TEST(Route, OfServersThatAreNoCandidatesNothingIsKnown) {
  const std::vector<Candidate> servers{server("a", {0, 3}), server("b", {3, 6})};
  const std::vector<Hop> known{{.address = "a", .layers = {0, 3}},
                               {.address = "b", .layers = {3, 6}}};
  EXPECT_LT(seconds_by(known, servers, query_of()), 100);
  EXPECT_EQ(seconds_by(std::vector<Hop>{{.address = "c", .layers = kAll}}, servers, query_of()),
            std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace atl::chain
