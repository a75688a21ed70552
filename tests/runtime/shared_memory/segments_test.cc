// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Two ends that pass segments to each other, and an end that breaks the rules.

#include "runtime/shared_memory/segments.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/shared_memory/socket.h"
#include "tests/accelerator/device/emulated_device.h"
#include "tests/runtime/shared_memory/emulated_opener.h"

namespace basin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = SegmentMessage::Kind;

struct Pair {
  explicit Pair(uint64_t most_bytes = std::numeric_limits<uint64_t>::max(),
                const DeviceOpener* opener = nullptr) {
    std::array<int, 2> sockets;
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()), 0);
    one = std::make_shared<Segments>(sockets[0]);
    other = std::make_shared<Segments>(sockets[1], most_bytes, opener);
  }
  // Sends bytes, and a descriptor unless it is negative, to `other`.
  void SendRaw(const std::string& bytes, int descriptor = -1) const {
    EXPECT_TRUE(SendMessage(one->socket(), bytes, descriptor).ok());
  }

  std::shared_ptr<Segments> one;
  std::shared_ptr<Segments> other;
};

TEST(Segments, ASegmentIsReferredToOnceTheOtherEndHasMappedIt) {
  const Pair pair;
  const auto segment = *Segment::Create(10'000);
  std::memcpy(segment->writable() + 100, "gradient", 8);
  const std::string_view bytes(segment->data() + 100, 8);
  pair.one->Offer(segment);
  EXPECT_FALSE(pair.one->Find({bytes}).has_value()) << "it is not known to be mapped";
  EXPECT_TRUE(pair.other->Receive().ok());
  EXPECT_TRUE(pair.one->Receive().ok());
  const std::optional<SharedPlaces> places = pair.one->Find({bytes});
  ASSERT_TRUE(places.has_value());
  EXPECT_THAT(*places, ElementsAre(SharedPlace{1, 100, 8}));
  const auto payload = pair.other->At(places->front());
  ASSERT_TRUE(payload.ok()) << payload.status();
  EXPECT_THAT((*payload)->pieces(), ElementsAre("gradient"));
  EXPECT_FALSE(pair.one->Find({"elsewhere"}).has_value());
  EXPECT_FALSE(pair.one->Find({bytes, "elsewhere"}).has_value()) << "not all of it";
  EXPECT_THAT(*pair.one->Find({bytes.substr(4), bytes}),
              ElementsAre(SharedPlace{1, 104, 4}, SharedPlace{1, 100, 8}));
  EXPECT_FALSE(pair.other->Find({bytes}).has_value()) << "it is not its own";
}

TEST(Segments, APayloadKeepsASegmentThatIsWithdrawn) {
  const Pair pair;
  auto segment = *Segment::Create(10'000);
  std::memcpy(segment->writable(), "gradient", 8);
  pair.one->Offer(segment);
  ASSERT_TRUE(pair.other->Receive().ok());
  ASSERT_TRUE(pair.one->Receive().ok());
  const PayloadPtr payload = *pair.other->At({1, 0, 8});
  const std::string_view bytes(segment->data(), 8);
  segment.reset();
  EXPECT_FALSE(pair.one->Find({bytes}).has_value());
  const auto next = *Segment::Create(5000);
  pair.one->Offer(next);
  ASSERT_TRUE(pair.other->Receive().ok());
  ASSERT_TRUE(pair.other->Receive().ok());
  // Frames on other connections may be slower than this one.
  EXPECT_EQ(pair.other->At({1, 0, 8}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(pair.other->At({3, 0, 8}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(payload->pieces(), ElementsAre("gradient"));
}

TEST(Segments, PlacesOutsideOfASegmentAreRefused) {
  const Pair pair;
  const auto segment = *Segment::Create(4096);
  pair.one->Offer(segment);
  ASSERT_TRUE(pair.other->Receive().ok());
  EXPECT_TRUE(pair.other->At({1, 0, 4096}).ok());
  EXPECT_TRUE(pair.other->At({1, 4095, 1}).ok());
  const uint64_t far = ~uint64_t{0};
  for (const SharedPlace place :
       {SharedPlace{1, 1, 4096}, SharedPlace{1, 4097, 0}, SharedPlace{1, far, 2},
        SharedPlace{1, 2, far}, SharedPlace{2, 0, 1}, SharedPlace{0, 0, 1}}) {
    const absl::Status status = pair.other->At(place).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << place.offset;
    EXPECT_THAT(status.message(), HasSubstr("refers to"));
  }
}

// ---- a full socket

// An end that is slow to read may leave no room for an answer.
class FullSocket : public testing::Test {
 protected:
  // Sends messages without effect to `one` until there is no room for another.
  int Fill() const {
    int sent = 0;
    while (pair_.other->Send({Kind::kMapped, 0, 0}).ok()) ++sent;
    return sent;
  }
  const Pair pair_;
};

TEST_F(FullSocket, AnAnswerWaitsForRoom) {
  const int before = Fill();
  const auto segment = *Segment::Create(4096);
  ASSERT_TRUE(pair_.one->Offer(segment));
  ASSERT_TRUE(pair_.other->Receive().ok());
  EXPECT_FALSE(pair_.other->closed());
  EXPECT_EQ(pair_.other->events(), POLLIN | POLLOUT);
  for (int i = 0; i < before; ++i) ASSERT_TRUE(pair_.one->Receive().ok());
  const std::string_view bytes(segment->data(), segment->size());
  EXPECT_FALSE(pair_.one->Find({bytes}).has_value());
  ASSERT_TRUE(pair_.other->Receive().ok());  // There is no message; it sends the answer.
  EXPECT_EQ(pair_.other->events(), POLLIN);
  ASSERT_TRUE(pair_.one->Receive().ok());
  EXPECT_TRUE(pair_.one->Find({bytes}).has_value());
}

TEST_F(FullSocket, AnswersKeepTheirOrder) {
  const auto segment = *Segment::Create(4096);
  const int before = Fill();
  for (const uint64_t number : {1, 2, 3}) {
    pair_.SendRaw(EncodeSegmentMessage({Kind::kOffer, number, segment->size()}),
                  segment->descriptor());
    ASSERT_TRUE(pair_.other->Receive().ok());
  }
  for (int i = 0; i < before; ++i) ASSERT_TRUE(pair_.one->ReceiveOpening().ok());
  ASSERT_TRUE(pair_.other->Receive().ok());
  for (const uint64_t number : {1, 2, 3}) {
    const auto answer = pair_.one->ReceiveOpening();
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->kind, Kind::kMapped);
    EXPECT_EQ(answer->number, number);
  }
}

// Otherwise an end that reads nothing could make the other keep answers without limit.
TEST_F(FullSocket, AnEndThatReadsNoAnswersIsNotReadEither) {
  const auto segment = *Segment::Create(4096);
  Fill();
  for (uint64_t number = 1; number <= kMaxSegments; ++number) {
    EXPECT_NE(pair_.other->events() & POLLIN, 0) << number;
    pair_.SendRaw(EncodeSegmentMessage({Kind::kOffer, number, segment->size()}),
                  segment->descriptor());
    ASSERT_TRUE(pair_.other->Receive().ok());
  }
  EXPECT_EQ(pair_.other->events(), POLLOUT);
}

TEST_F(FullSocket, AnEndThatGoesMeanwhileIsNoticed) {
  Fill();
  const auto segment = *Segment::Create(4096);
  ASSERT_TRUE(pair_.one->Offer(segment));
  ASSERT_TRUE(pair_.other->Receive().ok());
  pair_.one->Close();
  EXPECT_EQ(pair_.other->Receive().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(pair_.other->closed());
}

// ---- memory of a device

class DeviceSegments : public testing::Test {
 protected:
  std::shared_ptr<DeviceSegment> Make(uint64_t size) { return *Made(size); }
  std::optional<std::shared_ptr<DeviceSegment>> Made(uint64_t size) {
    auto made = trainer_->AllocateShared(size);
    if (!made.ok()) return std::nullopt;
    return std::move(made).value();
  }
  // Passes an offer and its answer.
  static void Exchange(const Pair& pair) {
    EXPECT_TRUE(pair.other->Receive().ok());
    EXPECT_TRUE(pair.one->Receive().ok());
  }

  EmulatedOpener opener_;
  const std::unique_ptr<accelerator::Device> trainer_ =
      accelerator::MakeEmulatedDevice(std::make_shared<accelerator::FaultPlan>());
};

TEST_F(DeviceSegments, ABlockOfADeviceIsReferredToLikeOneOfTheHost) {
  const Pair pair(1 << 20, &opener_);
  std::shared_ptr<DeviceSegment> segment = Make(10'000);
  std::memcpy(segment->data() + 100, "gradient", 8);
  EXPECT_TRUE(pair.one->Offer(segment));
  Exchange(pair);
  const auto places = pair.one->Find({{segment->data() + 100, 8}});
  ASSERT_TRUE(places.has_value());
  EXPECT_THAT(*places, ElementsAre(SharedPlace{1, 100, 8}));
  EXPECT_EQ(pair.other->device_bytes(), 10'000u);
  const auto payload = pair.other->At(places->front());
  ASSERT_TRUE(payload.ok()) << payload.status();
  ASSERT_NE((*payload)->on_device(), nullptr);
  EXPECT_TRUE((*payload)->pieces().empty()) << "the host cannot read it";
  const auto on_host = OnHost({*payload, 2, 6});
  ASSERT_TRUE(on_host.ok());
  EXPECT_THAT(on_host->owner->pieces(), ElementsAre("adient"));

  // It is withdrawn with its last user here, and kept by the payload there.
  segment.reset();
  EXPECT_TRUE(pair.one->Offer(Make(100)));
  EXPECT_TRUE(pair.other->Receive().ok());
  EXPECT_EQ(pair.other->device_bytes(), 0u);
  EXPECT_EQ(pair.other->At(places->front()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(OnHost({*payload, 0, 8}).ok());
}

TEST_F(DeviceSegments, PlacesOutsideOfThemAreRefused) {
  const Pair pair(1 << 20, &opener_);
  const auto segment = Make(4096);
  EXPECT_TRUE(pair.one->Offer(segment));
  Exchange(pair);
  constexpr uint64_t kFar = ~uint64_t{0};
  for (const SharedPlace place :
       {SharedPlace{1, 1, 4096}, SharedPlace{1, 4097, 0}, SharedPlace{1, kFar, 2},
        SharedPlace{1, 2, kFar}, SharedPlace{1, 64, 8, 3}}) {
    EXPECT_EQ(pair.other->At(place).status().code(), absl::StatusCode::kInvalidArgument);
  }
  opener_.has_failed = true;
  const absl::Status failed = pair.other->At({1, 0, 8}).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("the device of the aggregator has failed"));
}

// What cannot be opened is refused, and the connection stays: memory of the host is still shared.
TEST_F(DeviceSegments, WhatCannotBeOpenedIsRefusedWithAReason) {
  const Pair pair(1 << 20, &opener_);
  const auto segment = Make(4096);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(null, 0);
  struct {
    uint64_t size;
    int descriptor;
    const char* reason;
  } const offers[] = {{8192, segment->descriptor(), "has 4096 bytes and not 8192"},
                      {4096, null, "is no memory file"},
                      {4096, -1, "is no memory file"}};
  uint64_t number = 7;
  for (const auto& offer : offers) {
    pair.SendRaw(EncodeSegmentMessage({Kind::kOfferDevice, number, offer.size}), offer.descriptor);
    EXPECT_TRUE(pair.other->Receive().ok());
    EXPECT_THAT(pair.other->TakeRefusal(), HasSubstr(offer.reason));
    EXPECT_EQ(pair.other->TakeRefusal(), "");
    const auto answer = pair.one->ReceiveOpening();
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->kind, Kind::kRefused);
    EXPECT_EQ(answer->number, number++);
  }
  close(null);
  EXPECT_EQ(opener_.plan->shared_bytes, 0);
  EXPECT_TRUE(pair.one->Offer(*Segment::Create(4096)));
  Exchange(pair);

  pair.SendRaw(EncodeSegmentMessage({Kind::kOfferDevice, 20, 0}), segment->descriptor());
  EXPECT_EQ(pair.other->Receive().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(DeviceSegments, TheyCountWithThoseOfTheHost) {
  const Pair pair(10'000, &opener_);
  const auto host = *Segment::Create(6'000);
  const auto large = Make(6'000);
  const auto small = Make(4'000);
  EXPECT_TRUE(pair.one->Offer(host));
  Exchange(pair);
  EXPECT_TRUE(pair.one->Offer(large));
  Exchange(pair);
  EXPECT_FALSE(pair.one->Find({{large->data(), 1}}).has_value());
  EXPECT_FALSE(pair.one->Offer(large)) << "it was refused";
  EXPECT_EQ(pair.other->TakeRefusal(),
            "with its 6000 bytes the session would share 12000, and may share 10000");
  EXPECT_TRUE(pair.one->Offer(small));
  Exchange(pair);
  EXPECT_TRUE(pair.one->Find({{small->data(), 1}}).has_value());
  EXPECT_EQ(pair.other->device_bytes(), 4'000u);
}

TEST_F(DeviceSegments, AnEndWithoutADeviceRefusesThem) {
  const Pair pair;
  const auto segment = Make(4096);
  EXPECT_TRUE(pair.one->Offer(segment));
  Exchange(pair);
  EXPECT_FALSE(pair.one->Offer(segment));
}

TEST(Segments, AnOfferThatIsNoneEndsTheConnection) {
  const auto segment = *Segment::Create(4096);
  const std::string offer = EncodeSegmentMessage({Kind::kOffer, 1, 4096});
  {
    const Pair pair;
    pair.SendRaw(offer);  // Without a descriptor.
    EXPECT_EQ(pair.other->Receive().code(), absl::StatusCode::kInvalidArgument);
  }
  {
    const Pair pair;
    pair.SendRaw(EncodeSegmentMessage({Kind::kOffer, 1, 8192}), segment->descriptor());
    EXPECT_EQ(pair.other->Receive().code(), absl::StatusCode::kInvalidArgument);
  }
  {
    const Pair pair;
    pair.SendRaw(offer, segment->descriptor());
    EXPECT_TRUE(pair.other->Receive().ok());
    pair.SendRaw(offer, segment->descriptor());  // The same number again.
    EXPECT_EQ(pair.other->Receive().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Segments, TooManyAreRefused) {
  const Pair pair;
  const auto segment = *Segment::Create(4096);
  for (uint64_t number = 1; number <= kMaxSegments; ++number) {
    pair.SendRaw(EncodeSegmentMessage({Kind::kOffer, number, 4096}), segment->descriptor());
    ASSERT_TRUE(pair.other->Receive().ok()) << number;
    ASSERT_TRUE(pair.one->Receive().ok()) << number;
  }
  pair.SendRaw(EncodeSegmentMessage({Kind::kOffer, kMaxSegments + 1, 4096}), segment->descriptor());
  EXPECT_EQ(pair.other->Receive().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Segments, MoreThanASessionMayShareStaysOutside) {
  const Pair pair(10'000);
  const auto first = *Segment::Create(8192);
  const auto second = *Segment::Create(4096);
  for (const auto& segment : {first, second}) {
    pair.one->Offer(segment);
    ASSERT_TRUE(pair.other->Receive().ok());
    ASSERT_TRUE(pair.one->Receive().ok());
  }
  EXPECT_TRUE(pair.one->Find({{first->data(), 100}}).has_value());
  EXPECT_FALSE(pair.one->Find({{second->data(), 100}}).has_value());
  EXPECT_TRUE(pair.one->Offer(first));
  EXPECT_FALSE(pair.one->Offer(second)) << "it is known to be refused";
}

TEST(Segments, MessagesThatAreNoneEndTheConnection) {
  std::string foreign = EncodeSegmentMessage({Kind::kMapped, 1, 0});
  foreign[0] = 'x';
  std::string unknown = EncodeSegmentMessage({static_cast<Kind>(99), 1, 0});
  for (const std::string& bytes : {std::string("x"), std::string(1000, 'x'), foreign, unknown,
                                   EncodeSegmentMessage({Kind::kToken, 1, 0})}) {
    const Pair pair;
    pair.SendRaw(bytes);
    EXPECT_EQ(pair.other->Receive().code(), absl::StatusCode::kInvalidArgument) << bytes.size();
  }
}

TEST(Segments, TheEndOfTheOtherEndIsNoticed) {
  Pair pair;
  pair.one.reset();
  EXPECT_EQ(pair.other->Receive().code(), absl::StatusCode::kUnavailable);
  pair.other->Offer(*Segment::Create(4096));  // Nothing receives it.
}

TEST(LocalSocket, ANameIsConnectedToWhileSomebodyListens) {
  const std::string name = "@basin-test-" + std::to_string(getpid());
  EXPECT_FALSE(ConnectLocal(name).ok());
  const auto listener = ListenLocal(name);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto connected = ConnectLocal(name);
  ASSERT_TRUE(connected.ok()) << connected.status();
  EXPECT_FALSE(ListenLocal(name).ok()) << "it is taken";
  close(*connected);
  close(*listener);
}

TEST(LocalSocket, APathWithoutADirectoryIsNamed) {
  const std::string path = ::testing::TempDir() + "/basin-missing-" + std::to_string(getpid());
  const absl::Status status = ListenLocal(path + "/socket").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_NE(status.message().find(path), absl::string_view::npos) << status;
}

TEST(LocalSocket, APathThatAnEarlierProcessLeftIsUsedAgain) {
  const std::string path = ::testing::TempDir() + "/basin-" + std::to_string(getpid()) + ".sock";
  const auto first = ListenLocal(path);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(ListenLocal(path).ok()) << "somebody listens";
  close(*first);
  const auto second = ListenLocal(path);
  ASSERT_TRUE(second.ok()) << second.status();
  close(*second);
  unlink(path.c_str());
}

TEST(LocalSocket, ASocketThatAnotherProcessHasPutThereStays) {
  std::string directory = ::testing::TempDir() + "/sockets-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const std::string path = directory + "/socket";
  const auto first = ListenLocal(path);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::optional<SocketFile> file = SocketFileAt(path);
  ASSERT_TRUE(file.has_value());
  // The number of a file that is open is not given to another one.
  ASSERT_EQ(link(path.c_str(), (path + "2").c_str()), 0);
  unlink(path.c_str());
  RemoveSocket(path, file);
  const auto second = ListenLocal(path);
  ASSERT_TRUE(second.ok()) << second.status();
  RemoveSocket(path, file);
  RemoveSocket(path, std::nullopt);
  const std::optional<SocketFile> other = SocketFileAt(path);
  ASSERT_TRUE(other.has_value());
  RemoveSocket(path, other);
  EXPECT_FALSE(SocketFileAt(path).has_value());
  EXPECT_FALSE(SocketFileAt("@name").has_value());
  RemoveSocket(path + "2", file);
  EXPECT_EQ(rmdir(directory.c_str()), 0) << "all are gone";
  close(*first);
  close(*second);
}

TEST(LocalSocket, NamesThatNoSocketCanHaveAreRefused) {
  for (const std::string& name : {std::string(), std::string("@"), std::string("relative"),
                                  "/" + std::string(200, 'x'), std::string("/a\0b", 4)}) {
    EXPECT_EQ(CheckLocalName(name).code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_FALSE(ListenLocal(name).ok());
  }
}

}  // namespace
}  // namespace basin
