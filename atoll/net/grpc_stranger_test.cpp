// What strangers and broken peers send, through gRPC itself.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "atoll.grpc.pb.h"
#include "atoll/net/grpc_transport.h"
#include "atoll/testing/recorder.h"

namespace atl::net {
namespace {

using testing::HasSubstr;

struct GrpcStrangerTest : testing::Test {
  GrpcStrangerTest()
      : transport(make_grpc_transport({}, clock, recorder.sink())),
        stub(wire::Link::NewStub(grpc::CreateChannel(transport->listen("127.0.0.1:0").value(),
                                                     grpc::InsecureChannelCredentials()))) {}

  void greet(const char* version, const char* plane) {
    call.AddMetadata("atoll-protocol", version);
    call.AddMetadata("atoll-plane", plane);
  }
  /// Sends one segment as a peer that keeps the protocol so far; why was it dropped?
  std::string reason_after(const wire::Segment& segment) {
    greet("2", "bulk");
    const auto stream = stub->Connect(&call);
    const ConnectionId connection = recorder.wait_opened(true);
    stream->Write(segment);
    const std::string reason = recorder.wait_lost(connection);
    stream->Finish();
    return reason;
  }
  grpc::Status status_of_call() {
    const auto stream = stub->Connect(&call);
    wire::Segment answer;
    EXPECT_FALSE(stream->Read(&answer));
    return stream->Finish();
  }

  SystemClock clock;
  Recorder recorder;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<wire::Link::Stub> stub;
  grpc::ClientContext call;
};

TEST_F(GrpcStrangerTest, ACallerWithoutGreetingIsRefusedWithTheReason) {
  const grpc::Status status = status_of_call();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("this is Atoll protocol 2, the caller's is ''"));
}

TEST_F(GrpcStrangerTest, AnotherVersionIsRefusedWithBothNumbers) {
  greet("999", "bulk");
  EXPECT_THAT(status_of_call().error_message(),
              HasSubstr("this is Atoll protocol 2, the caller's is '999'"));
}

TEST_F(GrpcStrangerTest, AnUnknownPlaneIsRefused) {
  greet("2", "aero");
  EXPECT_THAT(status_of_call().error_message(), HasSubstr("plane"));
}

TEST_F(GrpcStrangerTest, AWrongChecksumIsLostWithTheReason) {
  wire::Segment segment;
  segment.set_data("hello");
  segment.set_last(true);
  segment.set_checksum(12345);
  EXPECT_THAT(reason_after(segment), HasSubstr("sent a frame of 5 bytes with a wrong checksum"));
  EXPECT_EQ(recorder.count<Received>(1), 0U);
}

TEST_F(GrpcStrangerTest, ASegmentBeyondTheLimitIsLost) {
  wire::Segment segment;
  segment.set_data(std::string(1'000'000, 'x'));
  EXPECT_THAT(reason_after(segment), HasSubstr("lost"));
  EXPECT_EQ(recorder.count<Received>(1), 0U);
}

TEST(GrpcOtherServiceTest, AServerThatIsNoAtollPeerIsLostWithTheReason) {
  grpc::ServerBuilder builder;  // gRPC, but without our service.
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  wire::Link::Service old_kind_of_link;
  builder.RegisterService(&old_kind_of_link);
  const auto server = builder.BuildAndStart();
  const SystemClock clock;
  Recorder recorder;
  const auto transport = make_grpc_transport({}, clock, recorder.sink());
  const ConnectionId connection =
      transport->connect("127.0.0.1:" + std::to_string(port), Plane::kControl);
  EXPECT_THAT(recorder.wait_lost(connection), HasSubstr("it is no Atoll peer"));
}

}  // namespace
}  // namespace atl::net
