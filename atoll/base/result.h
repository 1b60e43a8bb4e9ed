#pragma once
// Failure, third kind: what a healthy swarm meets daily (a peer lost, a deadline passed). It is a
// value that the caller must handle.
#include <string>
#include <tl/expected.hpp>

namespace atl {

struct Failure {
  std::string message;  // A lower-case sentence: what happened, to whom.
};

template <typename T>
using Result = tl::expected<T, Failure>;

inline tl::unexpected<Failure> failure(std::string message) {
  return tl::unexpected<Failure>(Failure{std::move(message)});
}

}  // namespace atl
