#pragma once
// The same for each of many things, by a few threads.
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace atl::weights {

/// Calls work(i) for each i < count, once; it does not throw. The calling thread is one of them.
template <typename Work>
void share_work(size_t count, int num_threads, const Work& work) {
  std::atomic<size_t> next = 0;
  const auto take = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < num_threads; ++i) others.emplace_back(take);
  take();
}

}  // namespace atl::weights
