#include "atoll/coordinator/address_calls.h"

#include <utility>

namespace atl::swarm {

void AddressCalls::want(Call call) {
  Line& line = lines_[call.name];
  line.wanted = std::move(call);
}

std::vector<AddressCalls::Call> AddressCalls::take_due(Time now) {
  std::vector<Call> out;
  std::erase_if(lines_, [&](const auto& entry) {
    const Line& line = entry.second;
    return !line.wanted && !line.is_open && now >= line.due;
  });
  for (auto& [name, line] : lines_) {
    if (!line.wanted || line.is_open || now < line.due) continue;
    out.push_back(*std::exchange(line.wanted, {}));
    line.is_open = true;
    line.due = now + kPause;
  }
  return out;
}

void AddressCalls::ended(const std::string& name) {
  if (const auto line = lines_.find(name); line != lines_.end()) line->second.is_open = false;
}

}  // namespace atl::swarm
