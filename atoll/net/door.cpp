#include "atoll/net/door.h"

#include <utility>

namespace atl::net {

Door::Place::~Place() { door_->leave(address_, is_greeting_); }

void Door::Place::greeted() {
  if (std::exchange(is_greeting_, false)) door_->note_greeted(address_);
}

std::shared_ptr<Door::Place> Door::enter(const std::string& address) {
  const MutexLock lock(mutex_);
  const auto found = counts_.find(address);
  const Count known = found == counts_.end() ? Count{} : found->second;
  if (num_greeting_ >= limits_.greeting || known.all >= limits_.per_address ||
      known.greeting >= limits_.greeting_per_address) {
    return nullptr;
  }
  ++num_greeting_;
  Count& count = counts_[address];
  ++count.all;
  ++count.greeting;
  return std::make_shared<Place>(shared_from_this(), address);
}

void Door::note_greeted(const std::string& address) {
  const MutexLock lock(mutex_);
  --num_greeting_;
  --counts_.at(address).greeting;
}

void Door::leave(const std::string& address, bool is_greeting) {
  const MutexLock lock(mutex_);
  Count& count = counts_.at(address);
  if (is_greeting) {
    --num_greeting_;
    --count.greeting;
  }
  if (--count.all == 0) counts_.erase(address);
}

}  // namespace atl::net
