#pragma once
// LibTorch's memory on the CPU: large tensors lie in a pool's blocks (base/buffer_pool.h).
#include <semaphore>
#include <thread>

#include "atoll/base/buffer_pool.h"

namespace atl::model {

/// Where they lie. Never destroyed: LibTorch's own tensors may be the last ones.
BufferPool& tensor_pool();

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
