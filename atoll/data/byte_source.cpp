#include "atoll/data/byte_source.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <variant>

#include "atoll/base/check.h"
#include "atoll/base/descriptor.h"

namespace atl::data {
namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib's way to say: gzip, its largest window.
constexpr int kMaxZstdWindowLog = 27;
constexpr size_t kMagicBytes = 4;

/// Of the bytes at the beginning of a file, a member or a frame.
Compression compression_at(std::span<const std::byte> head) {
  std::array<uint8_t, kMagicBytes> magic{};
  std::memcpy(magic.data(), head.data(), std::min(head.size(), magic.size()));
  if (magic[0] == 0x1F && magic[1] == 0x8B) return Compression::kGzip;
  if (magic[0] == 0x28 && magic[1] == 0xB5 && magic[2] == 0x2F && magic[3] == 0xFD) {
    return Compression::kZstd;
  }
  // A frame that zstd's readers skip; pzstd begins its files with one.
  const bool is_skippable =
      (magic[0] & 0xF0) == 0x50 && magic[1] == 0x2A && magic[2] == 0x4D && magic[3] == 0x18;
  return is_skippable ? Compression::kZstd : Compression::kNone;
}

const char* format_name(Compression compression) {
  return compression == Compression::kGzip ? "gzip" : "zstd";
}

/// What one call of a decompressor did.
struct Step {
  size_t taken = 0;
  size_t given = 0;
  bool ends_unit = false;  // A gzip member or a zstd frame.
  const char* fault = nullptr;
  bool is_window_too_large = false;
};

class Gunzip {
 public:
  Gunzip() { ATOLL_CHECK(inflateInit2(&stream_, kGzipWindow) == Z_OK); }
  ~Gunzip() { inflateEnd(&stream_); }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  Step step(std::span<const std::byte> in, std::span<char> out) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(std::min(out.size(), size_t{1} << 30));  // 32 bits.
    const uInt room = stream_.avail_out;
    const int state = inflate(&stream_, Z_NO_FLUSH);
    Step step{.taken = in.size() - stream_.avail_in, .given = room - stream_.avail_out};
    step.ends_unit = state == Z_STREAM_END;
    if (step.ends_unit) inflateReset(&stream_);
    const bool goes_on = state == Z_OK || state == Z_STREAM_END || state == Z_BUF_ERROR;
    if (!goes_on) step.fault = stream_.msg == nullptr ? "not gzip" : stream_.msg;
    return step;
  }

 private:
  z_stream stream_{};
};

class Unzstd {
 public:
  Unzstd() : stream_(ZSTD_createDStream()) {
    ATOLL_CHECK(stream_ != nullptr);
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kMaxZstdWindowLog);
  }
  ~Unzstd() { ZSTD_freeDStream(stream_); }
  Unzstd(const Unzstd&) = delete;
  Unzstd& operator=(const Unzstd&) = delete;

  Step step(std::span<const std::byte> in, std::span<char> out) {
    ZSTD_inBuffer input{in.data(), in.size(), 0};
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    const size_t state = ZSTD_decompressStream(stream_, &output, &input);
    Step step{.taken = input.pos, .given = output.pos, .ends_unit = state == 0};
    if (ZSTD_isError(state) != 0) {
      step.fault = ZSTD_getErrorName(state);
      step.is_window_too_large =
          ZSTD_getErrorCode(state) == ZSTD_error_frameParameter_windowTooLarge;
    }
    return step;
  }

 private:
  ZSTD_DStream* stream_;
};

ByteSource::Read reader_of(const std::filesystem::path& path) {
  const auto file = std::make_shared<Descriptor>(path, O_RDONLY);
  if (file->get() < 0) fail_at("read", path);
  return [file, path](std::span<std::byte> out) {
    for (;;) {
      const ssize_t got = ::read(file->get(), out.data(), out.size());
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) fail_at("read", path);
    }
  };
}

}  // namespace

Compression compression_of(std::string_view name) {
  if (name.ends_with(".gz")) return Compression::kGzip;
  return name.ends_with(".zst") ? Compression::kZstd : Compression::kNone;
}

std::string_view without_compression(std::string_view name) {
  if (compression_of(name) != Compression::kNone) name.remove_suffix(name.size() - name.rfind('.'));
  return name;
}

struct ByteSource::State {
  State(Read read_bytes, std::string file_name) : read(std::move(read_bytes)), name(file_name) {
    compression = compression_at(peek());
    if (compression == Compression::kGzip) unpacker.emplace<Gunzip>();
    if (compression == Compression::kZstd) unpacker.emplace<Unzstd>();
    const Compression named = compression_of(name);
    if (named == Compression::kNone || named == compression) return;
    throw DamagedFile(
        fmt::format("'{}' {}, which its name promises", name,
                    peek().empty() ? fmt::format("is empty and not {}", format_name(named))
                                   : fmt::format("does not begin as {} does", format_name(named))));
  }

  std::span<const std::byte> buffered() const {
    return std::span(buffer).subspan(begin, end - begin);
  }
  /// Reads on where there are fewer than `least` bytes; fewer come only at the end of the file.
  std::span<const std::byte> peek(size_t least = kMagicBytes) {
    if (end - begin < least) {
      std::memmove(buffer.data(), buffer.data() + begin, end - begin);
      end -= begin;
      begin = 0;
    }
    while (end < least) {
      const size_t got = read(std::span(buffer).subspan(end));
      if (got == 0) break;
      end += got;
    }
    return buffered();
  }
  void take(size_t count) {
    begin += count;
    packed_offset += static_cast<int64_t>(count);
  }
  size_t copy(std::span<char> out) {
    const std::span<const std::byte> bytes = peek(1);
    const size_t count = std::min(bytes.size(), out.size());
    std::memcpy(out.data(), bytes.data(), count);
    take(count);
    return count;
  }

  template <typename Error = DamagedFile>
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(
        fmt::format("'{}' {}; its first {} bytes, unpacked, could be read", name, what, given));
  }

  template <typename Unpacker>
  size_t unpack(Unpacker& unpacks, std::span<char> out) {
    for (;;) {
      if (!is_inside) {  // Between two members or frames.
        const std::span<const std::byte> head = peek();
        if (head.empty()) return 0;
        if (compression_at(head) != compression) {
          fail(fmt::format("holds something behind its end, from byte {} on, that is not {}",
                           packed_offset, format_name(compression)));
        }
        is_inside = true;
      }
      const std::span<const std::byte> in = peek(1);
      const Step step = unpacks.step(in, out);
      take(step.taken);
      given += static_cast<int64_t>(step.given);
      if (step.is_window_too_large) {
        fail<InputError>(
            "needs more than 128 MiB of memory to unpack (zstd's --long above 27): pack it again "
            "without that");
      }
      if (step.fault != nullptr) {
        fail(fmt::format("is damaged before byte {} ({}: {})", packed_offset,
                         format_name(compression), step.fault));
      }
      if (step.ends_unit) is_inside = false;
      if (step.given > 0) return step.given;
      if (in.empty() && is_inside) {
        fail(fmt::format("is truncated: after its {} bytes the {} data go on", packed_offset,
                         format_name(compression)));
      }
    }
  }

  Read read;
  std::string name;
  Compression compression = Compression::kNone;
  std::variant<std::monostate, Gunzip, Unzstd> unpacker;
  bool is_inside = false;
  std::vector<std::byte> buffer = std::vector<std::byte>(size_t{1} << 18);
  size_t begin = 0;  // What was read and not yet used: [begin, end) of the buffer.
  size_t end = 0;
  int64_t packed_offset = 0;
  int64_t given = 0;
};

ByteSource::ByteSource(const std::filesystem::path& file)
    : ByteSource(reader_of(file), file.string()) {}
ByteSource::ByteSource(Read read, std::string name)
    : state_(std::make_unique<State>(std::move(read), std::move(name))) {}
ByteSource::~ByteSource() = default;
ByteSource::ByteSource(ByteSource&&) noexcept = default;
ByteSource& ByteSource::operator=(ByteSource&&) noexcept = default;

size_t ByteSource::read(std::span<char> out) {
  ATOLL_CHECK(!out.empty());
  if (auto* gunzip = std::get_if<Gunzip>(&state_->unpacker)) return state_->unpack(*gunzip, out);
  if (auto* unzstd = std::get_if<Unzstd>(&state_->unpacker)) return state_->unpack(*unzstd, out);
  return state_->copy(out);
}

Compression ByteSource::compression() const { return state_->compression; }
const std::string& ByteSource::name() const { return state_->name; }
int64_t ByteSource::packed_offset() const { return state_->packed_offset; }

}  // namespace atl::data
