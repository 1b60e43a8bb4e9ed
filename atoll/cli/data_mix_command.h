#pragma once
// `atoll data mix`: token stores to be read together by weight.
#include <string>

namespace CLI {
class App;
}

namespace atl::data {
class Mixture;
}

namespace atl::cli {

void add_data_mix(CLI::App& data);

/// Prints a mixture's stores and shares, as one JSON object or for people.
void report_mixture(const data::Mixture& mixture, bool json);

}  // namespace atl::cli
