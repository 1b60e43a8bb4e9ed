#pragma once
// What an island's session tells of its coordinator and of the others (base/event.h).
#include <string>

#include "atoll/base/event.h"

namespace atl::collective {

/// Training goes on without it as far as it can.
struct CoordinatorLost {
  static constexpr const char* kKind = "coordinator_lost";
  std::string reason;
  double patience_s = 0;  // For which it is waited for.
  void visit(auto&& field) const { field("reason", reason), field("patience_s", patience_s); }
  std::string sentence() const;
};

struct CoordinatorBack {
  static constexpr const char* kKind = "coordinator_back";
  void visit(auto&&) const {}
  std::string sentence() const;
};

/// The coordinator cannot call this island where others are told that it is: they meet somewhere.
struct AddressUnreachable {
  static constexpr const char* kKind = "address_unreachable";
  std::string address;
  std::string reason;
  void visit(auto&& field) const { field("address", address), field("reason", reason); }
  std::string sentence() const;
};

/// The coordinator says why rounds do not go on.
struct WaitBegun {
  static constexpr const char* kKind = "wait_begun";
  std::string reason;
  void visit(auto&& field) const { field("reason", reason); }
  std::string sentence() const;
};

struct WaitOver {
  static constexpr const char* kKind = "wait_over";
  void visit(auto&&) const {}
  std::string sentence() const;
};

}  // namespace atl::collective
