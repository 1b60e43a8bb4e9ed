#pragma once
// How many connections strangers may take: in all, of one address, and of those that have not said
// who they are. Thread-safe.
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "atoll/base/mutex.h"

namespace atl::net {

struct DoorLimits {
  /// An institution's islands may share one address.
  int per_address = 256;
  int greeting = 512;             // That have not said Hello yet,
  int greeting_per_address = 32;  // of these from one address.
};

class Door : public std::enable_shared_from_this<Door> {
 public:
  /// One connection's place; given back when it goes.
  class Place {
   public:
    Place(std::shared_ptr<Door> door, std::string address)
        : door_(std::move(door)), address_(std::move(address)) {}
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    /// It has said who it is.
    void greeted();

   private:
    const std::shared_ptr<Door> door_;
    const std::string address_;
    bool is_greeting_ = true;
  };

  explicit Door(DoorLimits limits) : limits_(limits) {}
  /// Null when there is none for that address: a host without its port, of IPv6 its network, as
  /// identity::guess_group() has it.
  std::shared_ptr<Place> enter(const std::string& address);

 private:
  struct Count {
    int all = 0;
    int greeting = 0;
  };
  void leave(const std::string& address, bool is_greeting);
  void note_greeted(const std::string& address);

  const DoorLimits limits_;
  Mutex mutex_;
  int num_greeting_ ATOLL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Count> counts_ ATOLL_GUARDED_BY(mutex_);
};

}  // namespace atl::net
