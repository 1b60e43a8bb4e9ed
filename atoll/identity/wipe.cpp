#include "atoll/identity/wipe.h"

#include <openssl/crypto.h>

namespace atl::identity {

void wipe(std::string& secret) {
  secret.resize(secret.capacity());  // What a shorter text left behind it goes too.
  OPENSSL_cleanse(secret.data(), secret.size());
  secret.clear();
}

}  // namespace atl::identity
