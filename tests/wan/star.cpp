#include "star.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "atoll/base/error.h"

namespace atl::wan {
namespace {

constexpr uint32_t kNetwork = (10U << 24) | (77U << 16);  // 10.77.0.0/24
constexpr size_t kMaxHosts = 250;
constexpr int kMaxPacketsAtOnce = 256;  // From one host, before the others get their turn.
constexpr Duration kLongestTick{1'000'000};
constexpr int kTicksInDelay = 16;
constexpr int kMaxKillRounds = 2000;
constexpr size_t kIpHeaderBytes = 20;
constexpr size_t kDestinationOffset = 16;

double number(const std::string& key, const std::string& text, double max) {
  double value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= max)) {
    throw UsageError(fmt::format("{}={}: must be a number from 0 to {}", key, text, max));
  }
  return value;
}

void apply_setting(HostOptions& host, const std::string& key, const std::string& value) {
  const auto both = [&](auto change) {
    change(host.up);
    change(host.down);
  };
  if (key == "rate" || key == "up" || key == "down") {
    const double bits_per_second = number(key, value, 1e6) * 1e6;
    if (key != "down") host.up.bits_per_second = bits_per_second;
    if (key != "up") host.down.bits_per_second = bits_per_second;
  } else if (key == "delay") {
    const Duration delay(static_cast<int64_t>(number(key, value, 1e5) * 1e6));
    both([&](PipeOptions& pipe) { pipe.delay = delay; });
  } else if (key == "loss" || key == "loss_up" || key == "loss_down") {
    const double loss = number(key, value, 1);
    if (key != "loss_down") host.up.loss = loss;
    if (key != "loss_up") host.down.loss = loss;
  } else if (key == "queue") {
    const auto bytes = static_cast<int64_t>(number(key, value, 1e6) * 1024);
    both([&](PipeOptions& pipe) { pipe.queue_bytes = bytes; });
  } else if (key == "burst") {
    const auto bytes = static_cast<int64_t>(number(key, value, 1e9));
    both([&](PipeOptions& pipe) { pipe.burst_bytes = bytes; });
  } else {
    throw UsageError(fmt::format(
        "unknown key '{}': a link has rate, up, down, delay, loss, loss_up, loss_down, queue and "
        "burst",
        key));
  }
}

/// Its destination if it is an IPv4 packet of this network, as an index of hosts.
std::optional<size_t> destination(std::span<const std::byte> packet, size_t num_hosts) {
  if (packet.size() < kIpHeaderBytes || std::to_integer<int>(packet[0]) >> 4 != 4) return {};
  uint32_t address = 0;
  for (size_t i = 0; i < 4; ++i) {
    address = address << 8 | std::to_integer<uint32_t>(packet[kDestinationOffset + i]);
  }
  if (address <= kNetwork || address > kNetwork + num_hosts) return {};
  return address - kNetwork - 1;
}

std::string text_of(const PipeCounts& counts) {
  return fmt::format(R"({{"packets": {}, "bytes": {}, "lost": {}, "full": {}, "cut": {}}})",
                     counts.packets, counts.bytes, counts.lost, counts.full, counts.cut);
}

std::string quoted(const std::string& text) {  // For JSON; names and messages are ASCII.
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + "\"";
}

}  // namespace

void apply_settings(HostOptions& host, const std::string& settings) {
  std::istringstream in(settings);
  for (std::string item; std::getline(in, item, ',');) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos) {
      throw UsageError(fmt::format("'{}': must be key=value", item));
    }
    apply_setting(host, item.substr(0, equals), item.substr(equals + 1));
  }
}

Star::Star(const std::vector<HostOptions>& hosts, uint64_t seed, int mtu) {
  if (hosts.size() < 2 || hosts.size() > kMaxHosts) {
    throw UsageError(fmt::format("give 2 to {} hosts, not {}", kMaxHosts, hosts.size()));
  }
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (std::ranges::count(hosts, hosts[i].name, &HostOptions::name) > 1) {
      throw UsageError(fmt::format("two hosts are called '{}'", hosts[i].name));
    }
    hosts_.push_back({.options = hosts[i],
                      .space = HostNamespace(kNetwork + static_cast<uint32_t>(i) + 1, mtu),
                      .up = Pipe(hosts[i].up, seed, 2 * i),
                      .down = Pipe(hosts[i].down, seed, 2 * i + 1)});
  }
}

Star::~Star() {
  for (const Host& host : hosts_) {
    // Until none is left: a process takes a moment to die, and may start another meanwhile.
    for (int i = 0; i < kMaxKillRounds && host.space.kill_processes() > 0; ++i) usleep(1000);
  }
}

std::optional<Time> Star::step(const Clock& clock) {
  for (Host& host : hosts_) take_in(host, clock.now());
  hand_over(clock.now());
  std::optional<Time> next;
  for (const Host& host : hosts_) {
    for (const Pipe* pipe : {&host.up, &host.down}) {
      const auto arrival = pipe->next_arrival();
      if (arrival && (!next || *arrival < *next)) next = arrival;
    }
  }
  return next;
}

void Star::take_in(Host& host, Time now) {
  const auto from = static_cast<size_t>(&host - hosts_.data());
  for (int i = 0; i < kMaxPacketsAtOnce; ++i) {
    std::vector<std::byte> packet = host.space.read_packet();
    if (packet.empty()) return;
    const auto to = destination(packet, hosts_.size());
    if (!to || cut_pairs_.contains(std::minmax(from, *to))) continue;
    host.up.push(now, {.to = *to, .bytes = std::move(packet)});
  }
}

void Star::hand_over(Time now) {
  for (Host& host : hosts_) {
    while (auto packet = host.up.pop(now)) {
      // From when it reached the hub: a late wake-up costs no rate.
      const Time arrived = packet->arrived;
      hosts_[packet->to].down.push(arrived, std::move(*packet));
    }
  }
  for (Host& host : hosts_) {
    while (const auto packet = host.down.pop(now)) {
      if (!host.space.write_packet(packet->bytes)) ++host.refused;
    }
  }
}

Duration Star::tick() const {
  Duration shortest{};
  for (const Host& host : hosts_) {
    const Duration delay = host.options.up.delay;
    if (delay > Duration{} && (shortest == Duration{} || delay < shortest)) shortest = delay;
  }
  return std::min(kLongestTick, shortest / kTicksInDelay);
}

std::vector<int> Star::devices() const {
  std::vector<int> devices;
  for (const Host& host : hosts_) devices.push_back(host.space.device());
  return devices;
}

std::string Star::execute(const std::string& line, double cpu_seconds) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  try {
    return answer(words, cpu_seconds);
  } catch (const InputError& error) {
    return fmt::format(R"({{"error": {}}})", quoted(error.what()));
  }
}

std::string Star::answer(const std::vector<std::string>& words, double cpu_seconds) {
  const std::string verb = words.empty() ? "" : words[0];
  if (verb == "stats") return stats(cpu_seconds);
  if (verb == "hosts") return describe();
  if ((verb == "cut" || verb == "restore") && (words.size() == 2 || words.size() == 3)) {
    cut(words, verb == "cut");
  } else if (verb == "set" && words.size() == 3) {
    Host& host = hosts_[index_of(words[1])];
    apply_settings(host.options, words[2]);
    host.up.set(host.options.up);
    host.down.set(host.options.down);
  } else {
    throw UsageError(
        fmt::format("'{}': must be cut A [B], restore A [B], set A key=value,..., stats or hosts",
                    fmt::join(words, " ")));
  }
  return "{}";
}

void Star::cut(const std::vector<std::string>& words, bool is_cut) {
  const size_t first = index_of(words[1]);
  if (words.size() == 3) {
    const std::pair<size_t, size_t> pair = std::minmax(first, index_of(words[2]));
    if (is_cut) cut_pairs_.insert(pair);
    if (!is_cut) cut_pairs_.erase(pair);
    return;
  }
  for (Pipe* pipe : {&hosts_[first].up, &hosts_[first].down}) {
    if (is_cut) pipe->cut();
    if (!is_cut) pipe->restore();
  }
}

size_t Star::index_of(const std::string& name) const {
  for (size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].options.name == name) return i;
  }
  throw UsageError(fmt::format("no host is called '{}'", name));
}

std::string Star::stats(double cpu_seconds) const {
  std::vector<std::string> hosts;
  for (const Host& host : hosts_) {
    hosts.push_back(fmt::format(R"({}: {{"up": {}, "down": {}, "refused": {}}})",
                                quoted(host.options.name), text_of(host.up.counts()),
                                text_of(host.down.counts()), host.refused));
  }
  return fmt::format(R"({{"cpu_seconds": {:.3f}, "hosts": {{{}}}}})", cpu_seconds,
                     fmt::join(hosts, ", "));
}

std::string Star::describe() const {
  std::vector<std::string> hosts;
  for (const Host& host : hosts_) {
    hosts.push_back(fmt::format(R"({}: {{"address": "10.77.0.{}", "namespace": "/proc/{}/fd/{}"}})",
                                quoted(host.options.name), host.space.address() - kNetwork,
                                getpid(), host.space.namespace_fd()));
  }
  return fmt::format("{{{}}}", fmt::join(hosts, ", "));
}

}  // namespace atl::wan
