// Pieces made of any bytes, cut into any slices, as a stranger sends them through gRPC.
#include <cstdint>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/net/segment.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t step = 1 + data[0] % 32;
  std::vector<grpc::Slice> slices;
  for (size_t at = 1; at < size; at += step) {
    slices.emplace_back(data + at, std::min(step, size - at));
  }
  grpc::ByteBuffer buffer(slices.data(), slices.size());
  const auto piece = atl::net::to_piece(buffer);
  if (piece) ATOLL_CHECK(piece->data.size() < size);
  return 0;
}
