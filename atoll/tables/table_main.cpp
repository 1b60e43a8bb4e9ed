// The program `atoll-tables FILE`: the rows of an Arrow or Parquet file as lines of JSON on stdout.
// What JSON cannot say ends it with a sentence that names the column. It exits with 0, or with 1
// and the sentence on stderr; then what it has written is to be dropped.
#include <sys/resource.h>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/util/float16.h>
#include <parquet/arrow/reader.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 30;
constexpr rlim_t kMaxMemory = rlim_t{16} << 30;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

void check(const arrow::Status& status) {
  if (!status.ok()) fail(status.message());
}

template <typename T>
T value_or_fail(arrow::Result<T> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

/// Where a value stands, for messages: a column, or a part of one.
using Place = std::string;

[[noreturn]] void refuse(const Place& place, const std::string& why) {
  fail("column \"" + place + "\" " + why);
}

/// Before anything is read: types that have no place in JSON.
void check_type(const arrow::DataType& type, const Place& place, int depth) {
  if (depth > kMaxDepth) refuse(place, "is nested too deep");
  switch (type.id()) {
    case arrow::Type::NA:
    case arrow::Type::BOOL:
    case arrow::Type::INT8:
    case arrow::Type::INT16:
    case arrow::Type::INT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT8:
    case arrow::Type::UINT16:
    case arrow::Type::UINT32:
    case arrow::Type::UINT64:
    case arrow::Type::HALF_FLOAT:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRING_VIEW:
      return;
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST:
    case arrow::Type::STRUCT:
      for (const auto& field : type.fields()) {
        const bool is_struct = type.id() == arrow::Type::STRUCT;
        check_type(*field->type(), is_struct ? place + "." + field->name() : place + "[]",
                   depth + 1);
      }
      return;
    case arrow::Type::DICTIONARY:
      check_type(*static_cast<const arrow::DictionaryType&>(type).value_type(), place, depth + 1);
      return;
    default:
      refuse(place, "holds " + type.ToString() +
                        ", which JSON does not have: leave it out or write it as text");
  }
}

Json number(double value, const Place& place) {
  if (!std::isfinite(value)) {
    refuse(place, "holds " + std::to_string(value) + ", which JSON does not have");
  }
  return value;
}

template <typename Array>
Json plain(const arrow::Array& array, int64_t row) {
  return static_cast<const Array&>(array).Value(row);
}

template <typename Array>
Json text(const arrow::Array& array, int64_t row) {
  return std::string(static_cast<const Array&>(array).GetView(row));
}

Json value_at(const arrow::Array& array, int64_t row, const Place& place);

template <typename Array>
Json list(const arrow::Array& array, int64_t row, const Place& place) {
  const auto& lists = static_cast<const Array&>(array);
  Json values = Json::array();
  const int64_t begin = lists.value_offset(row);
  for (int64_t i = begin; i < begin + lists.value_length(row); ++i) {
    values.push_back(value_at(*lists.values(), i, place + "[]"));
  }
  return values;
}

Json object(const arrow::Array& array, int64_t row, const Place& place) {
  const auto& structs = static_cast<const arrow::StructArray&>(array);
  Json fields = Json::object();
  for (int i = 0; i < structs.num_fields(); ++i) {
    const std::string& name = structs.struct_type()->field(i)->name();
    fields[name] = value_at(*structs.field(i), row, place + "." + name);
  }
  return fields;
}

Json value_at(const arrow::Array& array, int64_t row, const Place& place) {
  if (array.IsNull(row)) return nullptr;
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      return plain<arrow::BooleanArray>(array, row);
    case arrow::Type::INT8:
      return plain<arrow::Int8Array>(array, row);
    case arrow::Type::INT16:
      return plain<arrow::Int16Array>(array, row);
    case arrow::Type::INT32:
      return plain<arrow::Int32Array>(array, row);
    case arrow::Type::INT64:
      return plain<arrow::Int64Array>(array, row);
    case arrow::Type::UINT8:
      return plain<arrow::UInt8Array>(array, row);
    case arrow::Type::UINT16:
      return plain<arrow::UInt16Array>(array, row);
    case arrow::Type::UINT32:
      return plain<arrow::UInt32Array>(array, row);
    case arrow::Type::UINT64:
      return plain<arrow::UInt64Array>(array, row);
    case arrow::Type::HALF_FLOAT: {
      const uint16_t bits = static_cast<const arrow::HalfFloatArray&>(array).Value(row);
      return number(arrow::util::Float16::FromBits(bits).ToDouble(), place);
    }
    case arrow::Type::FLOAT:
      return number(static_cast<const arrow::FloatArray&>(array).Value(row), place);
    case arrow::Type::DOUBLE:
      return number(static_cast<const arrow::DoubleArray&>(array).Value(row), place);
    case arrow::Type::STRING:
      return text<arrow::StringArray>(array, row);
    case arrow::Type::LARGE_STRING:
      return text<arrow::LargeStringArray>(array, row);
    case arrow::Type::STRING_VIEW:
      return text<arrow::StringViewArray>(array, row);
    case arrow::Type::LIST:
      return list<arrow::ListArray>(array, row, place);
    case arrow::Type::LARGE_LIST:
      return list<arrow::LargeListArray>(array, row, place);
    case arrow::Type::FIXED_SIZE_LIST:
      return list<arrow::FixedSizeListArray>(array, row, place);
    case arrow::Type::STRUCT:
      return object(array, row, place);
    case arrow::Type::DICTIONARY: {
      const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
      return value_at(*coded.dictionary(), coded.GetValueIndex(row), place);
    }
    default:  // check_type() lets no other pass.
      return nullptr;
  }
}

/// Writes batches as they come, so that a file need not fit into memory twice.
class Writer {
 public:
  explicit Writer(const arrow::Schema& schema) {
    for (const auto& field : schema.fields()) check_type(*field->type(), field->name(), 0);
  }

  void write(const arrow::RecordBatch& batch) {
    check(batch.ValidateFull());
    for (int64_t row = 0; row < batch.num_rows(); ++row) {
      Json line = Json::object();
      for (int i = 0; i < batch.num_columns(); ++i) {
        line[batch.column_name(i)] = value_at(*batch.column(i), row, batch.column_name(i));
      }
      const std::string written = line.dump() + "\n";
      if (std::fwrite(written.data(), 1, written.size(), stdout) != written.size()) {
        fail("cannot write what was read");
      }
    }
  }
};

void write_all(arrow::RecordBatchReader& reader) {
  Writer writer(*reader.schema());
  std::shared_ptr<arrow::RecordBatch> batch;
  while (true) {
    check(reader.ReadNext(&batch));
    if (batch == nullptr) return;
    writer.write(*batch);
  }
}

void write_parquet(const std::shared_ptr<arrow::io::RandomAccessFile>& file) {
  const std::unique_ptr<parquet::arrow::FileReader> reader =
      value_or_fail(parquet::arrow::OpenFile(file, arrow::default_memory_pool()));
  write_all(*value_or_fail(reader->GetRecordBatchReader()));
}

/// `datasets` writes streams of batches; others write files, which have a table of contents.
void write_arrow(const std::shared_ptr<arrow::io::RandomAccessFile>& file, bool is_stream) {
  if (is_stream) {
    write_all(*value_or_fail(arrow::ipc::RecordBatchStreamReader::Open(file)));
    return;
  }
  const auto reader = value_or_fail(arrow::ipc::RecordBatchFileReader::Open(file));
  Writer writer(*reader->schema());
  for (int i = 0; i < reader->num_record_batches(); ++i) {
    writer.write(*value_or_fail(reader->ReadRecordBatch(i)));
  }
}

void write_file(const std::string& path) {
  const std::shared_ptr<arrow::io::ReadableFile> file =
      value_or_fail(arrow::io::ReadableFile::Open(path));
  const std::string begin = value_or_fail(file->Read(6))->ToString();
  check(file->Seek(0));
  if (begin.starts_with("PAR1")) {
    write_parquet(file);
  } else {
    write_arrow(file, begin != "ARROW1");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: atoll-tables FILE.parquet|FILE.arrow (its rows as lines of JSON)\n", stderr);
    return 1;
  }
  // A few bytes of such a file can ask for any amount of memory.
  const rlimit memory{.rlim_cur = kMaxMemory, .rlim_max = kMaxMemory};
  ::setrlimit(RLIMIT_AS, &memory);
  try {
    write_file(argv[1]);
    if (std::fflush(stdout) != 0) fail("cannot write what was read");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
