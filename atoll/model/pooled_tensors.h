#pragma once
// LibTorch's memory on the CPU: large tensors lie in a pool's blocks (base/buffer_pool.h).
#include <semaphore>
#include <thread>

namespace atl::model {

/// Begins before LibTorch has taken any memory, at the start of main(): what was taken before must
/// not be given back by pointer alone. Nothing undoes it: tensors outlive main(). While it lives, a
/// thread of its own gives back to the system what lay free for a minute.
class PooledTensors {
 public:
  PooledTensors();
  ~PooledTensors();
  PooledTensors(const PooledTensors&) = delete;
  PooledTensors& operator=(const PooledTensors&) = delete;

 private:
  std::binary_semaphore is_over_{0};
  std::thread thread_;
};

}  // namespace atl::model
