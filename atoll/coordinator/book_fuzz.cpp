// Any bytes as a journal: read_book() throws InputError or makes a book, which its own contents
// make again.
#include <cstdint>
#include <cstdlib>

#include "atoll/base/error.h"
#include "atoll/coordinator/book.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  std::vector<atl::Bytes> journal;
  size_t begin = 0;
  while (begin < size) {  // The first byte of each entry says how long it is, the next its kind.
    const size_t length = std::min<size_t>(data[begin] % 64 + 1, size - begin);
    atl::Bytes entry(bytes.begin() + static_cast<ptrdiff_t>(begin),
                     bytes.begin() + static_cast<ptrdiff_t>(begin + length));
    const int kind = data[begin] % 10;
    entry[0] = static_cast<std::byte>(kind < 8 ? kind : kind + 246);  // 254, 255: a whole book.
    journal.push_back(std::move(entry));
    begin += length;
  }
  try {
    const atl::swarm::Book book = atl::swarm::read_book(journal);
    const atl::Bytes contents = book.contents();
    if (!(atl::swarm::read_book(std::span(&contents, 1)) == book)) std::abort();
  } catch (const atl::InputError&) {
    return 0;
  }
  return 0;
}
