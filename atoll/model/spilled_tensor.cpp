#include "atoll/model/spilled_tensor.h"

#include <ATen/ops/from_blob.h>

#include <memory>
#include <span>

#include "atoll/base/check.h"
#include "atoll/base/spilled_array.h"

namespace atl::model {
namespace {

/// Its address is also what spilled tensors are known by.
void delete_array(void* array) { delete static_cast<SpilledArray*>(array); }

}  // namespace

at::Tensor spilled_tensor(const std::filesystem::path& folder, int64_t size) {
  auto array = std::make_unique<SpilledArray>(folder, static_cast<size_t>(size) * sizeof(float));
  void* const data = array->bytes().data();
  return at::for_blob(data, size)
      .context(array.release(), &delete_array)
      .options(at::kFloat)
      .make_tensor();
}

bool is_spilled(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() &&
         tensor.storage().data_ptr().get_deleter() == &delete_array;
}

void let_rest(const at::Tensor& tensor) {
  if (!is_spilled(tensor)) return;
  ATOLL_CHECK(tensor.is_contiguous());
  atl::let_rest({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
}

}  // namespace atl::model
