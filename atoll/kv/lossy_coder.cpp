#include "atoll/kv/lossy_coder.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/kv/exact_coder.h"

namespace atl::kv {
namespace {

constexpr uint16_t kMagnitude = 0x7FFF;
constexpr uint16_t kTooLarge = 0x7F00;  // For the vectorwise coder: 2^127.

using Tokens = std::vector<uint32_t>;

/// Most tokens follow on each other: visit(the first's place among them, the first, how many).
template <typename F>
void for_runs(const Tokens& tokens, const F& visit) {
  for (size_t begin = 0; begin < tokens.size();) {
    size_t end = begin + 1;
    while (end < tokens.size() && tokens[end] == tokens[end - 1] + 1) ++end;
    visit(begin, size_t{tokens[begin]}, end - begin);
    begin = end;
  }
}

/// Of each row the values of these tokens.
std::vector<uint16_t> taken(std::span<const uint16_t> rows_T, size_t num_tokens,
                            const Tokens& tokens) {
  std::vector<uint16_t> some(rows_T.size() / num_tokens * tokens.size());
  for_runs(tokens, [&](size_t place, size_t first, size_t count) {
    uint16_t* to = some.data() + place;
    for (size_t row = 0; row < rows_T.size(); row += num_tokens, to += tokens.size()) {
      std::copy_n(rows_T.data() + row + first, count, to);
    }
  });
  return some;
}

void put_back(std::span<const uint16_t> some, const Tokens& tokens, size_t num_tokens,
              std::span<uint16_t> rows_T) {
  for_runs(tokens, [&](size_t place, size_t first, size_t count) {
    const uint16_t* from = some.data() + place;
    for (size_t row = 0; row < rows_T.size(); row += num_tokens, from += tokens.size()) {
      std::copy_n(from, count, rows_T.data() + row + first);
    }
  });
}

Tokens tokens_of(std::span<const uint8_t> is_exact_T, bool exact) {
  Tokens tokens;
  for (uint32_t t = 0; t < is_exact_T.size(); ++t) {
    if ((is_exact_T[t] != 0) == exact) tokens.push_back(t);
  }
  return tokens;
}

/// The profile's parts that a head's level asks for.
class LevelOfHead {
 public:
  LevelOfHead(const BlobHead& head, const Lossy& lossy) : head_(head), profile_(lossy.profile) {
    const bool is_vectorwise = head.level == Level::kVectorwise;
    const size_t num_levels =
        is_vectorwise ? profile_.vectorwise.size() : profile_.transforms.size();
    if (profile_.model != head.model || profile_.num_channels != head.num_channels ||
        profile_.num_layers < head.end_layer) {
      throw InputError(
          fmt::format("the profile is of '{}', and not of '{}'", profile_.model, head.model));
    }
    ATOLL_CHECK(head.level != Level::kExact && lossy.turns.num_tokens == head.num_tokens);
    if (head.step >= num_levels) {
      throw InputError(fmt::format("the profile has {} levels of that kind, and not a number {}",
                                   num_levels, head.step));
    }
    if (is_vectorwise) {
      add_vectorwise(profile_.vectorwise[head.step]);
      return;
    }
    std::vector<uint8_t> is_taken(2 * static_cast<size_t>(profile_.num_layers));
    for (size_t i = 0; i < profile_.groups.size(); ++i) {
      const Group& group = profile_.groups[i];
      if (group.first_layer < head.first_layer || group.end_layer > head.end_layer) continue;
      groups_.push_back(i);
      for (int32_t l = group.first_layer; l < group.end_layer; ++l) is_taken[group.plane_of(l)] = 1;
    }
    // Layers whose group other servers have a part of.
    ATOLL_CHECK(!profile_.vectorwise.empty());
    add_vectorwise(profile_.vectorwise.front(), is_taken);
  }

  /// Appends the tokens to `out`; 1 where one cannot be coded.
  std::vector<uint8_t> encode(std::span<const uint16_t> kv_PCT, const Turns& turns,
                              Bytes& out) const {
    const size_t num_tokens = turns.num_tokens;
    std::vector<uint8_t> refused_T(num_tokens);
    std::vector<float> y_MT;
    for (const size_t index : groups_) {
      const Group& group = profile_.groups[index];
      y_MT.resize(group.transform.num_channels() * num_tokens);
      for_planes(group, turns, y_MT, [&](size_t plane, const TurnTable* table, auto y_CT) {
        straighten(plane_in(kv_PCT, plane), turns, table, profile_.means_of(plane), y_CT);
      });
      group.transform.encode(y_MT, profile_.transforms[head_.step].groups[index], out, refused_T);
    }
    if (planes_.empty()) return refused_T;
    std::vector<uint16_t> some_PCT;
    for (const size_t plane : planes_) {
      const auto plane_CT = plane_in(kv_PCT, plane);
      some_PCT.insert(some_PCT.end(), plane_CT.begin(), plane_CT.end());
    }
    for (size_t i = 0; i < some_PCT.size(); ++i) {
      if ((some_PCT[i] & kMagnitude) >= kTooLarge) refused_T[i % num_tokens] = 1;
    }
    if (std::ranges::count(refused_T, 0) < std::ssize(refused_T)) return refused_T;
    encode_vectorwise(some_PCT, head_.num_channels, steps_PC_, vectorwise_, out);
    return refused_T;
  }

  void decode(ByteReader& in, const Turns& turns, std::span<uint16_t> kv_PCT) const {
    std::vector<float> y_MT;
    for (const size_t index : groups_) {
      const Group& group = profile_.groups[index];
      y_MT.resize(group.transform.num_channels() * turns.num_tokens);
      group.transform.decode(in, profile_.transforms[head_.step].groups[index], y_MT);
      for_planes(group, turns, y_MT, [&](size_t plane, const TurnTable* table, auto y_CT) {
        turn_again(y_CT, turns, table, profile_.means_of(plane), plane_in(kv_PCT, plane));
      });
    }
    if (planes_.empty()) return;
    std::vector<uint16_t> some_PCT(planes_.size() * head_.num_channels * turns.num_tokens);
    decode_vectorwise(in, head_.num_channels, steps_PC_, vectorwise_, some_PCT);
    auto from = some_PCT.begin();
    for (const size_t plane : planes_) {
      const auto to = plane_in(kv_PCT, plane);
      std::copy_n(from, to.size(), to.begin());
      from += std::ssize(to);
    }
  }

 private:
  /// Of planes that are in no group.
  void add_vectorwise(const VectorwiseLevel& level, std::span<const uint8_t> is_taken = {}) {
    for (int32_t p = 2 * head_.first_layer; p < 2 * head_.end_layer; ++p) {
      const auto plane = static_cast<size_t>(p);
      if (!is_taken.empty() && is_taken[plane] != 0) continue;
      planes_.push_back(plane);
      const auto steps_C = level.steps_of(plane);
      steps_PC_.insert(steps_PC_.end(), steps_C.begin(), steps_C.end());
      vectorwise_.push_back(level.planes_P[plane]);
    }
  }

  /// `plane`: of the model.
  template <typename T>
  std::span<T> plane_in(std::span<T> kv_PCT, size_t plane) const {
    const size_t size = kv_PCT.size() / head_.num_planes();
    return kv_PCT.subspan((plane - 2 * static_cast<size_t>(head_.first_layer)) * size, size);
  }

  template <typename F>
  void for_planes(const Group& group, const Turns& turns, std::span<float> y_MT,
                  const F& visit) const {
    const size_t size = head_.num_channels * turns.num_tokens;
    size_t begin = 0;
    for (int32_t layer = group.first_layer; layer < group.end_layer; ++layer, begin += size) {
      const TurnTable* const table =
          group.has_values ? nullptr : turns.of(static_cast<size_t>(layer));
      visit(group.plane_of(layer), table, y_MT.subspan(begin, size));
    }
  }

  const BlobHead& head_;
  const Profile& profile_;
  std::vector<size_t> groups_;   // Whose layers are all here.
  std::vector<size_t> planes_;   // All others, of the model,
  std::vector<float> steps_PC_;  // and how they are rounded.
  std::vector<VectorwisePlane> vectorwise_;
};

}  // namespace

void encode_lossy(const BlobHead& head, std::span<const uint16_t> kv_PCT, const Lossy& lossy,
                  ExactEnds ends, Bytes& out) {
  const LevelOfHead level(head, lossy);
  const size_t num_tokens = head.num_tokens;
  std::vector<uint8_t> is_exact_T(num_tokens);
  for (size_t t = 0; t < num_tokens; ++t) {
    is_exact_T[t] = t < ends.first || t + ends.last >= num_tokens ? 1 : 0;
  }
  Bytes coded;
  while (true) {
    const Tokens tokens = tokens_of(is_exact_T, false);
    if (tokens.empty()) break;
    const auto refused =
        level.encode(taken(kv_PCT, num_tokens, tokens), lossy.turns.of_tokens(tokens), coded);
    for (size_t i = 0; i < tokens.size(); ++i) is_exact_T[tokens[i]] = refused[i];
    if (std::ranges::count(refused, 0) == std::ssize(refused)) break;
    coded.clear();
  }
  const Tokens exact = tokens_of(is_exact_T, true);
  ByteWriter writer;
  writer.put(static_cast<uint32_t>(exact.size()));
  writer.put_bytes(std::as_bytes(std::span(exact)));
  const Bytes bytes = writer.take();
  out.insert(out.end(), bytes.begin(), bytes.end());
  if (!exact.empty()) {
    encode_exact(taken(kv_PCT, num_tokens, exact), head.num_planes(), head.num_channels, {}, out);
  }
  out.insert(out.end(), coded.begin(), coded.end());
}

void decode_lossy(ByteReader& in, const BlobHead& head, const Lossy& lossy,
                  std::span<uint16_t> kv_PCT) {
  const LevelOfHead level(head, lossy);
  const size_t num_tokens = head.num_tokens;
  const auto num_exact = in.get<uint32_t>();
  if (num_exact > num_tokens) throw InputError("it has more exact tokens than tokens");
  std::vector<uint8_t> is_exact_T(num_tokens);
  int64_t last = -1;
  for (uint32_t i = 0; i < num_exact; ++i) {
    const auto token = in.get<uint32_t>();
    if (token >= num_tokens || token <= last) throw InputError("its exact tokens are out of order");
    is_exact_T[token] = 1;
    last = token;
  }
  const size_t num_rows = head.num_planes() * head.num_channels;
  if (num_exact > 0) {
    std::vector<uint16_t> exact(num_rows * num_exact);
    decode_exact(in, head.num_planes(), head.num_channels, {}, exact);
    put_back(exact, tokens_of(is_exact_T, true), num_tokens, kv_PCT);
  }
  const Tokens tokens = tokens_of(is_exact_T, false);
  if (tokens.empty()) return;
  std::vector<uint16_t> coded(num_rows * tokens.size());
  level.decode(in, lossy.turns.of_tokens(tokens), coded);
  put_back(coded, tokens, num_tokens, kv_PCT);
}

}  // namespace atl::kv
