#pragma once
// Where the processes of an island find each other, and where what is small is written: a store of
// keys in process 0, or in the program that started them. Each connection is for one thread at a
// time, as a wait holds it.
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/run/process_place.h"

namespace atl::group {

using Store = c10::intrusive_ptr<c10d::Store>;

/// Process 0 opens the store, where nobody has, and the others go there. Throws InputError when
/// nobody answers within `patience`.
Store open_store(const run::ProcessPlace& place, Duration patience);
/// Another connection to a store that is open.
Store connect_again(const run::ProcessPlace& place, Duration patience);

void write(c10d::Store& store, const std::string& key, const std::string& text);
/// What is there; waits for it up to `patience`, and gives nothing where it does not come. Throws
/// c10::DistError when the store is gone.
std::optional<std::string> read(c10d::Store& store, const std::string& key, Duration patience);

}  // namespace atl::group
