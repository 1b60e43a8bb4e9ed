#pragma once
// Members are called at the address that others are told, to find out whether they can be. They
// name it themselves, and could so have this machine's network searched: each is called once at a
// time, then not for a while, whatever it names meanwhile, and is told little of what came of it.
// Pure; the coordinator owns one.
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/clock.h"

namespace atl::swarm {

class AddressCalls {
 public:
  static constexpr Duration kPause = std::chrono::seconds(10);  // From one to the next.

  struct Call {
    int32_t number = 0;
    std::string name;
    std::string address;
  };
  enum class Answer : uint8_t { kItself, kNobody, kAnother };

  /// In the place of what still waits for that member.
  void want(Call call);
  /// Whom to call now.
  std::vector<Call> take_due(Time now);
  /// Of the member's last call it is known what came.
  void ended(const std::string& name);

 private:
  struct Line {
    std::optional<Call> wanted;
    bool is_open = false;  // A call is under way.
    Time due{};
  };
  std::map<std::string, Line> lines_;  // By name: numbers are new with each membership.
};

/// All that members hear of it; empty: they can be called.
constexpr std::string_view fault_of(AddressCalls::Answer answer) {
  return answer == AddressCalls::Answer::kItself   ? ""
         : answer == AddressCalls::Answer::kNobody ? "it is not reached there"
                                                   : "another is there";
}

}  // namespace atl::swarm
