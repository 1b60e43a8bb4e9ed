// Walks grammars for grammar_oracle.py: a line of JSON in, a line of JSON out.
//   {"schema", "seed", "walks", "texts", "blanks"} -> {"walks": [texts], "takes": [flags]} or
//   {"error"}
//   {"schema", "vocabulary", "tokens"} -> {"compile_us", "mask_us": [...], "counts": [...]}, for
//   bench/structured_output.py; vocabulary: a file, a token's bytes in hexadecimal on each line
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/grammar/json_schema.h"
#include "atoll/grammar/machine.h"
#include "atoll/grammar/matcher.h"
#include "atoll/text/utf8.h"

namespace {

using atl::grammar::Grammar;
using atl::grammar::Machine;
using atl::grammar::Place;
using Json = nlohmann::ordered_json;

/// The bytes that a place takes, those that JSON has much of more often than others.
std::vector<uint8_t> choices(Machine& machine, const Place& place) {
  std::vector<uint8_t> bytes;
  std::vector<atl::grammar::Frame> to;
  for (int byte = 0; byte < 256; ++byte) {
    machine.load(place);
    const auto outcome = machine.step(place.tops, static_cast<uint8_t>(byte), to);
    if (to.empty() && !outcome.ended) continue;
    const bool is_structure = byte == '"' || byte == '}' || byte == ']' || byte == ',';
    bytes.insert(bytes.end(), is_structure ? 12 : byte < 0x80 ? 2 : 1, static_cast<uint8_t>(byte));
  }
  return bytes;
}

/// A text of the grammar; one that gets long takes the ways that close.
std::string walk(const Grammar& grammar, std::mt19937_64& random) {
  constexpr size_t kLong = 300, kTooLong = 20'000;
  Machine machine(grammar);
  Place place = machine.begin();
  std::string text;
  while (text.size() < kTooLong) {
    std::vector<uint8_t> bytes = choices(machine, place);
    if (place.may_end && (bytes.empty() || random() % 4 == 0 || text.size() > kLong)) return text;
    if (bytes.empty()) return text + "<dead end>";
    uint8_t byte = bytes[random() % bytes.size()];
    if (text.size() > kLong && random() % 2 == 0) {
      for (const char closing : std::string_view("\"}]")) {
        const auto wanted = static_cast<uint8_t>(closing);
        if (std::find(bytes.begin(), bytes.end(), wanted) != bytes.end()) byte = wanted;
      }
    }
    text += static_cast<char>(byte);
    place = machine.advance(place, std::string_view(text).substr(text.size() - 1));
  }
  return text + "<too long>";
}

Json answer(const Json& task) {
  atl::grammar::SchemaOptions options;
  if (!task.value("blanks", false)) options.blanks = atl::grammar::Blanks::kNone;
  const auto grammar = atl::grammar::schema_grammar(task["schema"].dump(), options);
  Json result = {{"walks", Json::array()}, {"takes", Json::array()}};
  std::mt19937_64 random(task.value("seed", 1));
  for (int i = 0; i < task.value("walks", 0); ++i) {
    int64_t num_replaced = 0;
    result["walks"].push_back(atl::text::repair_utf8(walk(*grammar, random), num_replaced));
  }
  for (const auto& text : task.value("texts", Json::array())) {
    Machine machine(*grammar);
    result["takes"].push_back(machine.advance(machine.begin(), text.get<std::string>()).may_end);
  }
  return result;
}

std::shared_ptr<const atl::grammar::Vocabulary> read_vocabulary(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> tokens;
  for (std::string line; std::getline(file, line);) {
    std::string& token = tokens.emplace_back();
    for (size_t i = 0; i + 1 < line.size(); i += 2) {
      token += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    }
  }
  return std::make_shared<const atl::grammar::Vocabulary>(tokens,
                                                          std::vector<atl::grammar::TokenId>{0});
}

/// Microseconds of processor time: others on a busy machine do not count.
double micros_used() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

/// How long masks take along some tokens, and how many tokens each allows.
Json timed(const Json& task) {
  static const auto vocabulary = read_vocabulary(task["vocabulary"]);
  Json result = {{"mask_us", Json::array()}, {"counts", Json::array()}};
  double begin = micros_used();
  const auto grammar = atl::grammar::schema_grammar(task["schema"].dump());
  result["compile_us"] = micros_used() - begin;
  atl::grammar::Matcher matcher(
      std::make_shared<const atl::grammar::TokenMasks>(grammar, vocabulary));
  for (const auto& token : task["tokens"]) {
    begin = micros_used();
    const atl::grammar::TokenMask mask = matcher.mask();
    result["mask_us"].push_back(micros_used() - begin);
    result["counts"].push_back(mask.count());
    if (!matcher.advance(token.get<int>())) throw atl::InputError("a token is not taken");
  }
  return result;
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    Json result;
    try {
      const Json task = Json::parse(line);
      result = task.contains("vocabulary") ? timed(task) : answer(task);
    } catch (const atl::InputError& error) {
      result["error"] = error.what();
    }
    std::printf("%s\n", result.dump().c_str());
  }
}
