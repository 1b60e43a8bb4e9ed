#include "atoll/openai/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace atl::openai {
namespace {

constexpr std::array kSlow{0.005, 0.01, 0.025, 0.05, 0.1,  0.25, 0.5,
                           1.0,   2.5,  5.0,   10.0, 30.0, 60.0, 120.0};
constexpr std::array kFast{0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05,
                           0.075, 0.1,    0.15,  0.25, 0.5,  1.0,  2.5};

std::string heading(std::string_view name, std::string_view help, std::string_view type) {
  return fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
}

std::string escaped(std::string_view label) {
  std::string out;
  for (const char c : label) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

struct ModelNumber {
  const char* name;
  const char* help;
  const char* type;
  int64_t decoding::GeneratorStatus::* value;
};
constexpr ModelNumber kModelNumbers[] = {
    {"atoll_model_running", "Texts that the model makes.", "gauge",
     &decoding::GeneratorStatus::num_running},
    {"atoll_model_waiting", "Texts that wait for the model.", "gauge",
     &decoding::GeneratorStatus::num_waiting},
    {"atoll_kv_bytes", "Keys and values that are kept.", "gauge",
     &decoding::GeneratorStatus::kv_bytes},
    {"atoll_kv_capacity_bytes", "Room for keys and values.", "gauge",
     &decoding::GeneratorStatus::kv_capacity_bytes},
    {"atoll_prompt_tokens_total", "Tokens of prompts that were read.", "counter",
     &decoding::GeneratorStatus::prompt_tokens},
    {"atoll_cached_tokens_total", "Tokens of prompts whose keys and values were there.", "counter",
     &decoding::GeneratorStatus::cached_tokens},
    {"atoll_made_tokens_total", "Tokens that were made.", "counter",
     &decoding::GeneratorStatus::made_tokens},
    {"atoll_drafted_tokens_total", "Tokens that were guessed, and verified with others.", "counter",
     &decoding::GeneratorStatus::drafted_tokens},
    {"atoll_accepted_tokens_total", "Of those that were guessed, the right ones.", "counter",
     &decoding::GeneratorStatus::accepted_tokens},
    {"atoll_audited_tokens_total", "Tokens that were recomputed here, for servers that made them.",
     "counter", &decoding::GeneratorStatus::audited_tokens},
    {"atoll_liars_total", "Servers that were found to compute something else than their model.",
     "counter", &decoding::GeneratorStatus::liars},
};

}  // namespace

void Histogram::add(double value) {
  const auto bucket = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  ++counts_[static_cast<size_t>(bucket)];
  sum_ += value;
}

std::string Histogram::text(std::string_view name, std::string_view help) const {
  std::string out = heading(name, help, "histogram");
  int64_t count = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    count += counts_[i];
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bounds_[i], count);
  }
  count += counts_.back();
  return out + fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name,
                           count, sum_);
}

Metrics::Metrics() : wait_(kSlow), first_token_(kSlow), gap_(kFast), request_(kSlow) {}

void Metrics::count_request(const std::string& endpoint, int status) {
  const MutexLock lock(mutex_);
  ++requests_[{endpoint, status}];
}

void Metrics::add_wait(Duration time) {
  const MutexLock lock(mutex_);
  wait_.add(seconds(time));
}

void Metrics::add_first_token(Duration time) {
  const MutexLock lock(mutex_);
  first_token_.add(seconds(time));
}

void Metrics::add_gap(Duration time) {
  const MutexLock lock(mutex_);
  gap_.add(seconds(time));
}

void Metrics::add_request(Duration time) {
  const MutexLock lock(mutex_);
  request_.add(seconds(time));
}

std::string Metrics::text(const Now& now) const {
  std::string out = heading("atoll_requests_total", "Requests that were answered.", "counter");
  const MutexLock lock(mutex_);
  for (const auto& [what, count] : requests_) {
    out += fmt::format("atoll_requests_total{{endpoint=\"{}\",status=\"{}\"}} {}\n",
                       escaped(what.first), what.second, count);
  }
  out += heading("atoll_running", "Texts that are made.", "gauge") +
         fmt::format("atoll_running {}\n", now.num_running) +
         heading("atoll_waiting", "Requests that wait for their turn.", "gauge") +
         fmt::format("atoll_waiting {}\n", now.num_waiting);
  out += wait_.text("atoll_wait_seconds", "From a request's coming to its turn.");
  out += first_token_.text("atoll_time_to_first_token_seconds",
                           "From a request's coming to its first token.");
  out += gap_.text("atoll_inter_token_seconds", "Between two tokens of a text.");
  out += request_.text("atoll_request_seconds", "From a request's coming to its answer's end.");
  for (const ModelNumber& number : kModelNumbers) {
    out += heading(number.name, number.help, number.type);
    for (const auto& [model, status] : now.models) {
      out +=
          fmt::format("{}{{model=\"{}\"}} {}\n", number.name, escaped(model), status.*number.value);
    }
  }
  out += heading("atoll_recoveries_total", "Chains of servers that were changed under way.",
                 "counter");
  for (const auto& [model, status] : now.models) {
    for (const auto& [kind, count] : status.recoveries) {
      out += fmt::format("atoll_recoveries_total{{model=\"{}\",kind=\"{}\"}} {}\n", escaped(model),
                         escaped(kind), count);
    }
  }
  return out;
}

}  // namespace atl::openai
