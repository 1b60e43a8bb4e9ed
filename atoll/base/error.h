#pragma once
// Failure, second kind: bad input. A file, a setting or a request is wrong; an exception carries a
// message to the edge of the program (main, a peer's message), which prints it and ends with the
// code. Messages are lower-case sentences: what, where, what to do.
#include <stdexcept>

namespace atl {

/// The input (file, data, model) cannot be used. The program ends with exit code 1.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The command line or a setting is wrong. The program ends with exit code 2.
class UsageError : public InputError {
 public:
  using InputError::InputError;
};

}  // namespace atl
