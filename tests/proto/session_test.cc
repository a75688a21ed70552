// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/session.h"

#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <variant>

#include "absl/strings/str_cat.h"
#include "basin/v1/session.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"
#include "protocol/limits/limits.h"
#include "tests/proto/quiet_protobuf.h"
#include "tests/proto/random_messages.h"

namespace basin::wire {
namespace {

using ::basin::testing::RandomMessages;
using ::testing::HasSubstr;

// The differences between the two directions, so that each test is written once.
struct ToAggregatorSide {
  using Message = ToAggregator;
  using Proto = v1::ToAggregator;
  static absl::StatusOr<Message> DecodeBytes(std::string_view bytes) {
    return DecodeToAggregator(bytes);
  }
};
struct ToWorkerSide {
  using Message = ToWorker;
  using Proto = v1::ToWorker;
  static absl::StatusOr<Message> DecodeBytes(std::string_view bytes) {
    return DecodeToWorker(bytes);
  }
};

template <typename Side>
class SessionMessages : public ::testing::Test {
 protected:
  static constexpr size_t kAlternatives = std::variant_size_v<typename Side::Message>;

  // Calls check(message, index of its alternative) for random messages of every alternative.
  template <typename Check>
  void ForEach(int rounds, Check check) {
    for (int seed = 0; seed < rounds; ++seed) {
      RandomMessages random(seed);
      for (size_t i = 0; i < kAlternatives; ++i) {
        SCOPED_TRACE(absl::StrCat("seed ", seed, ", alternative ", i));
        check(random.MakeAlternative<typename Side::Message>(i), i);
        if (this->HasFatalFailure()) return;
      }
    }
  }

  const basin::testing::QuietProtobuf quiet_;
};

using Sides = ::testing::Types<ToAggregatorSide, ToWorkerSide>;
TYPED_TEST_SUITE(SessionMessages, Sides);

TYPED_TEST(SessionMessages, EveryMessageSurvivesTheWire) {
  this->ForEach(300, [](const auto& message, size_t) {
    const absl::StatusOr<std::string> bytes = Encode(message);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto back = TypeParam::DecodeBytes(*bytes);
    ASSERT_TRUE(back.ok()) << back.status();
    ASSERT_TRUE(*back == message);
  });
}

// hello_world -> HelloWorld
std::string CamelCase(std::string_view snake) {
  std::string out;
  bool up = true;
  for (const char c : snake) {
    if (c != '_') out.push_back(up ? static_cast<char>(std::toupper(c)) : c);
    up = c == '_';
  }
  return out;
}

// Fails when an alternative of protocol has no field in the oneof, a field no alternative, or
// two of them are crossed.
TYPED_TEST(SessionMessages, OneofAndVariantHaveTheSameAlternatives) {
  const google::protobuf::Descriptor* proto = TypeParam::Proto::descriptor();
  ASSERT_EQ(proto->oneof_decl_count(), 1);
  const google::protobuf::OneofDescriptor* oneof = proto->oneof_decl(0);
  ASSERT_EQ(proto->field_count(), oneof->field_count() + 1) << "a field outside the oneof";
  ASSERT_NE(proto->FindFieldByName("checksum"), nullptr);
  // The other fields are for session_stream.h, which takes them apart and puts them together.
  ASSERT_EQ(oneof->field_count(), this->kAlternatives + 2);
  ASSERT_EQ(oneof->field(this->kAlternatives)->name(), "batch");
  ASSERT_EQ(oneof->field(this->kAlternatives + 1)->name(), "piece");
  this->ForEach(1, [oneof](const auto& message, size_t index) {
    typename TypeParam::Proto out;
    ASSERT_TRUE(Encode(message, &out).ok());
    const auto* field = out.GetReflection()->GetOneofFieldDescriptor(out, oneof);
    ASSERT_NE(field, nullptr);
    EXPECT_EQ(field->number(), static_cast<int>(index) + 1) << field->name();
    EXPECT_EQ(field->message_type()->name(), CamelCase(std::string(field->name())));
  });
}

// Counts the fields of a struct that a random value has other than its default.
template <typename T>
void ExpectEveryFieldDrawn(const char* name) {
  constexpr size_t kFields = std::tuple_size_v<decltype(std::declval<const T&>().Fields())>;
  std::array<bool, kFields> drawn{};
  RandomMessages random(1);
  const T fallback{};
  for (int i = 0; i < 200; ++i) {
    const T value = random.Make<T>();
    std::apply(
        [&](const auto&... field) {
          std::apply(
              [&](const auto&... unset) {
                size_t index = 0;
                ((drawn[index] = drawn[index] || !(field == unset), ++index), ...);
              },
              fallback.Fields());
        },
        value.Fields());
  }
  for (size_t i = 0; i < kFields; ++i) {
    EXPECT_TRUE(drawn[i]) << "field " << i << " of " << name << " never differs from its default";
  }
}

template <typename Variant, size_t... I>
void ExpectEveryFieldOfEachDrawn(std::index_sequence<I...>) {
  (ExpectEveryFieldDrawn<std::variant_alternative_t<I, Variant>>(
       typeid(std::variant_alternative_t<I, Variant>).name()),
   ...);
}

// Otherwise the test above would not notice a field that the wire forgets.
TYPED_TEST(SessionMessages, RandomMessagesCoverEveryField) {
  ExpectEveryFieldOfEachDrawn<typename TypeParam::Message>(
      std::make_index_sequence<std::variant_size_v<typename TypeParam::Message>>());
}

TEST(SessionValues, RandomValuesCoverEveryField) {
  ExpectEveryFieldDrawn<Generation>("Generation");
  ExpectEveryFieldDrawn<Incarnation>("Incarnation");
  ExpectEveryFieldDrawn<Ballot>("Ballot");
  ExpectEveryFieldDrawn<Error>("Error");
  ExpectEveryFieldDrawn<Membership>("Membership");
  ExpectEveryFieldDrawn<TensorSpec>("TensorSpec");
  ExpectEveryFieldDrawn<ChunkRange>("ChunkRange");
  ExpectEveryFieldDrawn<Bitmap>("Bitmap");
  ExpectEveryFieldDrawn<BlobKey>("ValueKey");
  ExpectEveryFieldDrawn<RoundSpec>("RoundSpec");
  ExpectEveryFieldDrawn<Counts>("Counts");
  ExpectEveryFieldDrawn<SampleRange>("SampleRange");
  ExpectEveryFieldDrawn<SampleEpoch>("SampleEpoch");
  ExpectEveryFieldDrawn<SampleProgress>("SampleProgress");
  ExpectEveryFieldDrawn<RoundSamples>("RoundSamples");
  ExpectEveryFieldDrawn<Contributor>("Contributor");
  ExpectEveryFieldDrawn<TensorDivisor>("TensorDivisor");
  ExpectEveryFieldDrawn<NonFinite>("NonFinite");
  ExpectEveryFieldDrawn<RoundFacts>("RoundFacts");
  ExpectEveryFieldDrawn<RoundValue>("RoundValue");
  ExpectEveryFieldDrawn<VerdictRecord>("VerdictRecord");
  ExpectEveryFieldDrawn<JobSettings>("JobSettings");
  ExpectEveryFieldDrawn<StagedValue>("StagedValue");
  ExpectEveryFieldDrawn<LaneHistory>("LaneHistory");
  ExpectEveryFieldDrawn<StartRound>("StartRound");
  ExpectEveryFieldDrawn<OpenRound>("OpenRound");
  ExpectEveryFieldDrawn<LastVerdicts>("LastVerdicts");
}

// A message that was cut is either refused, or a message of its own that survives the wire.
TYPED_TEST(SessionMessages, Fault_N10_CutMessagesAreRefusedOrValid) {
  int refused = 0;
  this->ForEach(2, [&refused](const auto& message, size_t) {
    const std::string bytes = *Encode(message);
    for (size_t size = 0; size < bytes.size(); ++size) {
      const auto cut = TypeParam::DecodeBytes(std::string_view(bytes).substr(0, size));
      if (!cut.ok()) {
        ++refused;
        ASSERT_EQ(cut.status().code(), absl::StatusCode::kInvalidArgument);
        continue;
      }
      const auto again = TypeParam::DecodeBytes(*Encode(*cut));
      ASSERT_TRUE(again.ok()) << again.status();
      ASSERT_TRUE(*again == *cut);
    }
  });
  EXPECT_GT(refused, 0);
}

// Flipped bits never crash, and an accepted message can be encoded.
TYPED_TEST(SessionMessages, Fault_N10_DamagedMessagesAreRefusedOrValid) {
  RandomMessages random(7);
  this->ForEach(20, [&random](const auto& message, size_t) {
    std::string bytes = *Encode(message);
    for (int i = 0; i < 20 && !bytes.empty(); ++i) {
      std::string damaged = bytes;
      for (uint64_t flips = 1 + random.Below(3); flips > 0; --flips) {
        damaged[random.Below(damaged.size())] ^= static_cast<char>(1 << random.Below(8));
      }
      const auto decoded = TypeParam::DecodeBytes(damaged);
      if (!decoded.ok()) continue;
      const absl::StatusOr<std::string> encoded = Encode(*decoded);
      ASSERT_TRUE(encoded.ok()) << encoded.status();
      const auto again = TypeParam::DecodeBytes(*encoded);
      ASSERT_TRUE(again.ok()) << again.status();
      ASSERT_EQ(*Encode(*again), *encoded);
    }
  });
}

TYPED_TEST(SessionMessages, Fault_N10_TheDefaultMessageIsRefused) {
  const auto decoded = TypeParam::DecodeBytes("");
  ASSERT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("message is empty"));
}

TYPED_TEST(SessionMessages, Fault_N11_OversizedMessagesAreRefusedUnread) {
  const std::string bytes(kMaxAssembledBytes + 1, '\0');
  const auto decoded = TypeParam::DecodeBytes(bytes);
  ASSERT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("67108865 bytes, more than"));
}

TYPED_TEST(SessionMessages, APieceIsNoWholeMessage) {
  typename TypeParam::Proto proto;
  proto.mutable_piece()->set_bytes("x");
  const auto decoded = TypeParam::DecodeBytes(proto.SerializeAsString());
  ASSERT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("piece is not allowed here"));
}

TYPED_TEST(SessionMessages, UnknownFieldsAreIgnored) {
  this->ForEach(3, [](const auto& message, size_t) {
    typename TypeParam::Proto proto;
    ASSERT_TRUE(Encode(message, &proto).ok());
    const auto* oneof = proto.GetDescriptor()->oneof_decl(0);
    const auto* field = proto.GetReflection()->GetOneofFieldDescriptor(proto, oneof);
    auto* inner = proto.GetReflection()->MutableMessage(&proto, field);
    proto.GetReflection()->MutableUnknownFields(&proto)->AddLengthDelimited(900, "newer");
    inner->GetReflection()->MutableUnknownFields(inner)->AddVarint(901, 7);
    const auto back = TypeParam::DecodeBytes(proto.SerializeAsString());
    ASSERT_TRUE(back.ok()) << back.status();
    ASSERT_TRUE(*back == message);
  });
}

// ---- single rules

// Expects that a valid message of the type is refused with `text` after `spoil`.
template <typename Message, typename Spoil>
void ExpectRefused(Spoil spoil, const std::string& text) {
  using Variant =
      std::conditional_t<std::is_constructible_v<ToAggregator, Message>, ToAggregator, ToWorker>;
  using Proto =
      std::conditional_t<std::is_same_v<Variant, ToAggregator>, v1::ToAggregator, v1::ToWorker>;
  RandomMessages random(3);
  Proto proto;
  ASSERT_TRUE(Encode(Variant(random.Make<Message>()), &proto).ok());
  const auto decode = [&] {
    if constexpr (std::is_same_v<Variant, ToAggregator>) {
      return DecodeToAggregator(proto.SerializeAsString());
    } else {
      return DecodeToWorker(proto.SerializeAsString());
    }
  };
  ASSERT_TRUE(decode().ok());
  spoil(&proto);
  const auto decoded = decode();
  ASSERT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr(text));
}

TEST(SessionRules, Fault_N10_HelloNeedsMagicVersionNonceAndNames) {
  using P = v1::ToAggregator*;
  ExpectRefused<Hello>([](P p) { p->mutable_hello()->Clear(); }, "hello.magic");
  ExpectRefused<Hello>([](P p) { p->mutable_hello()->set_magic(1); }, "hello.magic");
  ExpectRefused<Hello>([](P p) { p->mutable_hello()->clear_protocol_version(); },
                       "hello.protocol_version is required");
  ExpectRefused<Hello>([](P p) { p->mutable_hello()->clear_contract_version(); },
                       "hello.contract_version is required");
  ExpectRefused<Hello>([](P p) { p->mutable_hello()->clear_nonce(); }, "hello.nonce is required");
  ExpectRefused<Hello>([](P p) { p->mutable_hello()->clear_job(); }, "hello.job");
  ExpectRefused<Hello>([](P p) { p->mutable_hello()->clear_worker(); }, "hello.worker");
}

// A worker of one trainer sends the bytes that it sent before there were others.
TEST(SessionRules, OneRankIsNotOnTheWire) {
  RandomMessages random(6);
  Hello hello = random.Make<Hello>();
  hello.membership.members = {{"a", "b"}};
  hello.ranks = 1;
  v1::ToAggregator proto;
  ASSERT_TRUE(Encode(ToAggregator(hello), &proto).ok());
  EXPECT_EQ(proto.hello().ranks(), 0u);
  EXPECT_EQ(proto.hello().membership().ranks_size(), 0);
  Begin begin = random.Make<Begin>();
  begin.ranks = 1;
  ASSERT_TRUE(Encode(ToAggregator(begin), &proto).ok());
  EXPECT_EQ(proto.begin().ranks(), 0u);
}

TEST(SessionRules, RanksOfMembersAreOneForEachAndBounded) {
  using P = v1::ToAggregator*;
  const auto with = [](std::vector<uint32_t> ranks) {
    return [ranks = std::move(ranks)](P p) {
      auto* membership = p->mutable_hello()->mutable_membership();
      membership->clear_members();
      membership->add_members("a");
      membership->add_members("b");
      membership->mutable_ranks()->Assign(ranks.begin(), ranks.end());
    };
  };
  ExpectRefused<Hello>(with({2}), "hello.membership.ranks are not one for each member");
  ExpectRefused<Hello>(with({2, 1, 1}), "hello.membership.ranks are not one for each member");
  ExpectRefused<Hello>(with({2, 0}), "hello.membership.ranks is required");
  ExpectRefused<Hello>(with({2, kMaxRanks + 1}), "hello.membership.ranks");
}

// The core refuses it, and can name job, worker and round.
TEST(SessionRules, RanksOfABeginAreLetThrough) {
  RandomMessages random(6);
  Begin begin = random.Make<Begin>();
  begin.ranks = ~uint32_t{0};
  v1::ToAggregator proto;
  ASSERT_TRUE(Encode(ToAggregator(begin), &proto).ok());
  const auto decoded = Decode(proto);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(std::get<Begin>(*decoded).ranks, begin.ranks);
}

TEST(SessionRules, WorkersThatWereReducedTogetherAreInOrder) {
  const auto with = [](const std::vector<WorkerId>& others) {
    return [others](v1::ToAggregator* p) {
      p->mutable_begin()->mutable_reduced_with()->Assign(others.begin(), others.end());
    };
  };
  const std::string disorder = "begin.reduced_with is not in byte order, or names a worker twice";
  ExpectRefused<Begin>(with({"b", "a"}), disorder);
  ExpectRefused<Begin>(with({"a", "a"}), disorder);
  ExpectRefused<Begin>(with({"a b"}), "begin.reduced_with");
  std::vector<WorkerId> many;
  for (uint32_t i = 0; i < kMaxRanks; ++i) many.push_back(absl::StrCat("w", 1000 + i));
  ExpectRefused<Begin>(with(many), "begin.reduced_with");
  Begin begin = RandomMessages(7).Make<Begin>();
  begin.reduced_with = many;
  EXPECT_FALSE(Check(begin).ok());
  begin.reduced_with.pop_back();
  EXPECT_TRUE(Check(begin).ok());
}

TEST(SessionRules, NumbersOfAnOptimizerAreCutToWholeLines) {
  Begin begin = RandomMessages(8).Make<Begin>();
  begin.optimizer_numbers.assign(kMaxOptimizerLines, std::string(63, 'x'));
  const auto arrived = [&] {
    v1::ToAggregator proto;
    EXPECT_TRUE(Encode(ToAggregator(begin), &proto).ok());
    const auto decoded = Decode(proto);
    EXPECT_TRUE(decoded.ok()) << decoded.status();
    return std::get<Begin>(*decoded).optimizer_numbers;
  };
  EXPECT_EQ(arrived(), std::vector<std::string>(kMaxOptimizerBytes / 64, std::string(63, 'x')));
  begin.optimizer_numbers.assign(2 * kMaxOptimizerLines, "lr\x1b=1");
  EXPECT_EQ(arrived(), std::vector<std::string>(kMaxOptimizerLines, "lr?=1"));
  // A peer that sends more is not trusted with the memory for it.
  ExpectRefused<Begin>(
      [](v1::ToAggregator* p) {
        for (uint32_t i = 0; i <= kMaxOptimizerLines; ++i) {
          p->mutable_begin()->add_optimizer_numbers("lr=1");
        }
      },
      "begin.optimizer_numbers");
}

TEST(SessionRules, HelloMayNameWhatIsHeldFree) {
  RandomMessages random(4);
  const ToAggregator hello = random.Make<Hello>();
  v1::ToAggregator proto;
  ASSERT_TRUE(Encode(hello, &proto).ok());
  proto.mutable_hello()->set_shard(1);
  proto.mutable_hello()->set_shard_count(4);
  const auto decoded = Decode(proto);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(*decoded == hello);
}

TEST(SessionRules, Fault_S7_HostileNamesAreRefusedWhereverTheyStand) {
  using P = v1::ToAggregator*;
  for (const std::string& name : {std::string("../../etc/passwd"), std::string("a\nb"),
                                  std::string("<script>"), std::string(1 << 20, 'a')}) {
    ExpectRefused<Hello>([&](P p) { p->mutable_hello()->set_job(name); }, "hello.job");
    ExpectRefused<Hello>([&](P p) { p->mutable_hello()->set_worker(name); }, "hello.worker");
    ExpectRefused<Hello>([&](P p) { p->mutable_hello()->set_run(name); }, "hello.run");
    ExpectRefused<Hello>([&](P p) { p->mutable_hello()->mutable_membership()->add_members(name); },
                         "hello.membership.members");
  }
  for (const std::string& name :
       {std::string("a\nb"), std::string("a\u202eb"), std::string(), std::string(1 << 20, 'a')}) {
    ExpectRefused<Register>([&](P p) { p->mutable_register_()->set_lane(name); }, "register.lane");
    ExpectRefused<Register>(
        [&](P p) {
          auto* spec = p->mutable_register_()->add_tensors();
          spec->set_name(name);
          spec->set_dtype(v1::DTYPE_F32);
        },
        "].name");
    ExpectRefused<Get>([&](P p) { p->mutable_get()->mutable_key()->set_tensor(name); },
                       "get.key.tensor");
  }
}

TEST(SessionRules, Fault_S7_TextsArriveCutAndPrintable) {
  v1::ToAggregator proto;
  proto.mutable_withdraw()->set_round(1);
  proto.mutable_withdraw()->set_reason("two\nlines \u202e<b>" + std::string(5000, 'x'));
  const auto decoded = Decode(proto);
  ASSERT_TRUE(decoded.ok());
  const std::string& reason = std::get<Withdraw>(*decoded).reason;
  EXPECT_EQ(reason.size(), kMaxTextBytes);
  EXPECT_EQ(reason.substr(0, 15), "two?lines ?<b>x");
  v1::ToWorker told;
  told.mutable_held_up()->set_text("two\nlines" + std::string(5000, 'x'));
  const auto heard = Decode(told);
  ASSERT_TRUE(heard.ok());
  EXPECT_EQ(std::get<HeldUp>(*heard).text.substr(0, 10), "two?linesx");
  EXPECT_EQ(std::get<HeldUp>(*heard).text.size(), kMaxTextBytes);
}

TEST(SessionRules, TextsOfThisSideMayHoldAnyBytes) {
  const absl::StatusOr<std::string> bytes =
      Encode(ToAggregator(Withdraw{0, 1, std::string("\xff\0bad", 5)}));
  ASSERT_TRUE(bytes.ok());
  const auto decoded = DecodeToAggregator(*bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(std::get<Withdraw>(*decoded).reason, "??bad");
}

TEST(SessionRules, Fault_W11_ScalesAreFiniteAndNotZero) {
  using P = v1::ToAggregator*;
  const auto spec = [](P p) { return p->mutable_begin()->mutable_spec(); };
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan(""), 0.0}) {
    ExpectRefused<Begin>([&](P p) { spec(p)->set_prescale(bad); }, "begin.spec.prescale");
    ExpectRefused<Begin>([&](P p) { spec(p)->set_postscale(bad); }, "begin.spec.postscale");
    ExpectRefused<Begin>([&](P p) { spec(p)->set_predivide(bad); }, "begin.spec.predivide");
    ExpectRefused<Begin>([&](P p) { spec(p)->set_loss_scale(bad); }, "begin.spec.loss_scale");
  }
  ExpectRefused<Begin>([&](P p) { spec(p)->set_predivide(-1); }, "predivide is negative");
  ExpectRefused<Begin>([&](P p) { spec(p)->set_loss_scale(-1); }, "loss_scale is negative");
}

TEST(SessionRules, Criterion_1_1_OpAndKindAreDeclared) {
  using P = v1::ToAggregator*;
  const auto spec = [](P p) { return p->mutable_begin()->mutable_spec(); };
  ExpectRefused<Begin>([](P p) { p->mutable_begin()->clear_spec(); }, "begin.spec is required");
  ExpectRefused<Begin>([&](P p) { spec(p)->clear_op(); }, "begin.spec.op is required");
  ExpectRefused<Begin>([&](P p) { spec(p)->clear_kind(); }, "begin.spec.kind is required");
  ExpectRefused<Begin>([&](P p) { spec(p)->clear_weight_by(); }, "begin.spec.weight_by");
  ExpectRefused<Begin>([&](P p) { spec(p)->clear_denominator(); }, "begin.spec.denominator");
  ExpectRefused<Begin>([&](P p) { spec(p)->set_op(static_cast<v1::ReduceOp>(7)); },
                       "begin.spec.op is 7, which is not in 1 to 6");
}

// The aggregator's answer to the message of a call; the client gives the same without sending it.
template <typename Call>
void ExpectSameAnswer(const Call& call, bool allowed) {
  const absl::StatusOr<std::string> bytes = Encode(ToAggregator(call));
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(Check(call), DecodeToAggregator(*bytes).status());
  EXPECT_EQ(Check(call).ok(), allowed) << Check(call);
}

// Breaks one thing in a call that was allowed.
template <typename Call, typename Break>
void ExpectSameRefusal(uint64_t seed, Break break_it) {
  auto call = RandomMessages(seed).Make<Call>();
  break_it(call);
  ExpectSameAnswer(call, false);
}

TEST(SessionRules, ACallIsCheckedAsItsMessageIs) {
  const double nan = std::nan("");
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    RandomMessages random(seed);
    ExpectSameAnswer(random.Make<Register>(), true);
    ExpectSameAnswer(random.Make<Begin>(), true);
    ExpectSameAnswer(random.Make<Announce>(), true);
    ExpectSameAnswer(random.Make<Get>(), true);

    const TensorSpec spec = random.Make<TensorSpec>();
    TensorSpec bad = spec;
    switch (seed % 4) {
      case 0:
        bad.name = "two\nlines";
        break;
      case 1:
        bad.dtype = static_cast<DType>(77);
        break;
      case 2:
        bad.shape.assign(kMaxRank + 1, 1);
        break;
      default:
        bad.shape = {kMaxTensorBytes, kMaxTensorBytes};
    }
    ExpectSameRefusal<Register>(seed, [&](Register& call) { call.tensors = {spec, bad}; });
    ExpectSameRefusal<Register>(seed, [&](Register& call) { call.tensors = {spec, spec}; });
    ExpectSameRefusal<Register>(seed, [](Register& call) { call.lane.clear(); });
    ExpectSameRefusal<Register>(seed, [](Register& call) { call.kind = static_cast<LaneKind>(9); });
    ExpectSameRefusal<Announce>(seed, [&](Announce& call) { call.spec = bad; });
    ExpectSameRefusal<Announce>(seed, [](Announce& call) { call.key.tensor.clear(); });
    ExpectSameRefusal<Get>(seed, [&](Get& call) { call.expected = bad; });
    ExpectSameRefusal<Get>(seed, [](Get& call) { call.source = "No Worker"; });
    ExpectSameRefusal<Get>(seed, [](Get& call) { call.key.lane = "\x01"; });
    ExpectSameRefusal<Begin>(seed, [](Begin& call) { call.spec.op = ReduceOp::kUnspecified; });
    ExpectSameRefusal<Begin>(
        seed, [](Begin& call) { call.spec.kind = static_cast<ContributionKind>(9); });
    ExpectSameRefusal<Begin>(seed, [&](Begin& call) { call.spec.prescale = nan; });
    ExpectSameRefusal<Begin>(seed, [](Begin& call) { call.spec.postscale = 0; });
    ExpectSameRefusal<Begin>(seed, [](Begin& call) { call.spec.predivide = -1; });
    ExpectSameRefusal<Begin>(seed, [](Begin& call) { call.spec.loss_scale = -1; });
    ExpectSameRefusal<Begin>(seed, [](Begin& call) { call.samples = {{0, 1}, {5, 5}}; });
    ExpectSameRefusal<Begin>(seed, [](Begin& call) {
      call.samples.assign(kMaxSampleRanges + 1, {0, 1});
    });
  }
}

TEST(SessionRules, TensorSizesDoNotOverflow) {
  using P = v1::ToAggregator*;
  const auto with_shape = [](std::vector<uint64_t> shape) {
    return [shape](P p) {
      auto* spec = p->mutable_register_()->add_tensors();
      spec->set_name("a tensor of its own");
      spec->set_dtype(v1::DTYPE_F32);
      for (const uint64_t size : shape) spec->add_shape(size);
    };
  };
  ExpectRefused<Register>(with_shape({uint64_t{1} << 32, uint64_t{1} << 32}), "larger than");
  ExpectRefused<Register>(with_shape({~uint64_t{0}}), "larger than");
  ExpectRefused<Register>(with_shape({kMaxTensorBytes / 4 + 1}), "larger than");
  ExpectRefused<Register>(with_shape(std::vector<uint64_t>(kMaxRank + 1, 1)),
                          "shape has more than 16 entries");
}

TEST(SessionRules, ChunkRangesDoNotOverflow) {
  using P = v1::ToAggregator*;
  const auto with_range = [](uint32_t tensor, uint32_t first, uint32_t count) {
    return [=](P p) {
      p->mutable_need()->clear_ranges();
      auto* range = p->mutable_need()->add_ranges();
      range->set_tensor(tensor);
      range->set_first(first);
      range->set_count(count);
    };
  };
  ExpectRefused<Need>(with_range(kMaxTensors, 0, 1), "need.ranges[0].tensor");
  ExpectRefused<Need>(with_range(0, 0, 0), "need.ranges[0].count is required");
  ExpectRefused<Need>(with_range(0, kMaxChunksPerTensor, 1), "first + count");
  ExpectRefused<Need>(with_range(0, 2, ~uint32_t{0} - 1), "first + count");
}

TEST(SessionRules, ListsAreBounded) {
  using P = v1::ToAggregator*;
  ExpectRefused<Hello>(
      [](P p) {
        p->mutable_hello()->clear_lanes();
        for (uint32_t i = 0; i <= kMaxLanes; ++i) p->mutable_hello()->add_lanes();
      },
      "hello.lanes has more than 4096 entries");
  ExpectRefused<Hello>(
      [](P p) {
        auto* members = p->mutable_hello()->mutable_membership();
        members->clear_members();
        for (uint32_t i = 0; i <= kMaxWorkers; ++i) members->add_members(absl::StrCat("w", i));
      },
      "members has more than 10000 entries");
  ExpectRefused<Skip>(
      [](P p) {
        for (uint32_t i = 0; i <= kMaxTensors; ++i) p->mutable_skip()->add_tensors(0);
      },
      "skip.tensors");
  ExpectRefused<Begin>(
      [](P p) {
        for (uint32_t i = 0; i <= kMaxSampleRanges; ++i) p->mutable_begin()->add_samples();
      },
      "begin.samples");
  ExpectRefused<Commit>(
      [](P p) { p->mutable_commit()->mutable_present()->set_size(kMaxTensors + 1); },
      "commit.present.size");
}

TEST(SessionRules, BitmapsHaveNoStrayBits) {
  using P = v1::ToAggregator*;
  const auto with = [](uint32_t size, std::string bits) {
    return [=](P p) {
      p->mutable_commit()->mutable_present()->set_size(size);
      p->mutable_commit()->mutable_present()->set_bits(bits);
    };
  };
  ExpectRefused<Commit>(with(9, "\xff"), "present.size(bits) is 1 instead of 2");
  ExpectRefused<Commit>(with(3, "\x0f"), "present.bits has a bit set beyond size");
  ExpectRefused<Commit>(with(8, "\x01\x01"), "present.size(bits) is 2 instead of 1");
}

TEST(SessionRules, ListsThatNameThingsNameThemOnce) {
  ExpectRefused<Register>(
      [](v1::ToAggregator* p) {
        for (int i = 0; i < 2; ++i) {
          auto* spec = p->mutable_register_()->add_tensors();
          spec->set_name("twice");
          spec->set_dtype(v1::DTYPE_F32);
        }
      },
      "names \"twice\" twice");
  ExpectRefused<Skip>(
      [](v1::ToAggregator* p) {
        for (int i = 0; i < 2; ++i) p->mutable_skip()->add_tensors(7);
      },
      "names tensor 7 twice");
  ExpectRefused<Verdict>(
      [](v1::ToWorker* p) {
        auto* next = p->mutable_verdict()->mutable_record()->mutable_next();
        next->add_members("w-1");
        next->add_members("w-1");
      },
      "names \"w-1\" twice");
  ExpectRefused<Verdict>(
      [](v1::ToWorker* p) {
        auto* value = p->mutable_verdict()->mutable_record()->mutable_value();
        value->clear_contributors();
        for (const char* worker : {"b", "a"}) {
          auto* contributor = value->add_contributors();
          contributor->set_worker(worker);
          contributor->mutable_incarnation();
        }
      },
      "contributors are not in order");
}

TEST(SessionRules, Criterion_3_1_TotalsThatNobodyKnowsStayUnknown) {
  RandomMessages random(5);
  Verdict verdict = random.Make<Verdict>();
  verdict.record.value.facts.totals = {8176, std::nullopt, 0};
  const auto back = DecodeToWorker(*Encode(ToWorker(verdict)));
  ASSERT_TRUE(back.ok());
  const Counts& totals = std::get<Verdict>(*back).record.value.facts.totals;
  EXPECT_EQ(totals.samples, std::optional<uint64_t>(8176));
  EXPECT_EQ(totals.tokens, std::nullopt);
  EXPECT_EQ(totals.micro_batches, std::optional<uint64_t>(0));
}

TEST(SessionRules, Fault_W11_CountsThatCouldWrapAreNoVerdict) {
  const auto refused = [](auto&& change, const std::string& text) {
    RandomMessages random(7);
    Verdict verdict = random.Make<Verdict>();
    RoundValue& value = verdict.record.value;
    value.contributors = {{"w", {1, 1}, kMaxCount, std::nullopt}};
    value.facts.totals = {kMaxTotalCount, kMaxTotalCount, kMaxTotalCount};
    EXPECT_TRUE(DecodeToWorker(*Encode(ToWorker(verdict))).ok()) << "the most that there can be";
    change(value);
    EXPECT_THAT(DecodeToWorker(*Encode(ToWorker(verdict))).status().message(), HasSubstr(text));
  };
  refused([](RoundValue& value) { ++value.contributors[0].weight; },
          "contributors[0].weight is 281474976710657, more than 281474976710656");
  refused([](RoundValue& value) { ++*value.facts.totals.samples; }, "facts.totals.samples is");
  refused([](RoundValue& value) { ++*value.facts.totals.tokens; }, "facts.totals.tokens is");
  refused([](RoundValue& value) { ++*value.facts.totals.micro_batches; },
          "facts.totals.micro_batches is");
}

TEST(SessionRules, ANormThatIsNoNumberTravels) {
  RandomMessages random(6);
  Verdict verdict = random.Make<Verdict>();
  verdict.record.value.facts.squared_norm = std::nan("");
  const auto back = DecodeToWorker(*Encode(ToWorker(verdict)));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(std::isnan(std::get<Verdict>(*back).record.value.facts.squared_norm));
}

TEST(SessionRules, AnAbortCauseOfALaterReleaseIsNotKnown) {
  RandomMessages random(11);
  Verdict verdict = random.Make<Verdict>();
  verdict.record.value.abort_cause = AbortCause::kNoContributor;
  v1::ToWorker wire;
  ASSERT_TRUE(wire.ParseFromString(*Encode(ToWorker(verdict))));
  v1::RoundValue& value = *wire.mutable_verdict()->mutable_record()->mutable_value();
  value.set_abort_cause(static_cast<v1::AbortCause>(v1::AbortCause_MAX + 1));
  const auto back = DecodeToWorker(wire.SerializeAsString());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(std::get<Verdict>(*back).record.value.abort_cause, AbortCause::kUnspecified);
}

TEST(SessionRules, APlacementNamesEachShardOnceAndLeavesOne) {
  const auto refused = [](void (*change)(v1::Placement&), const char* field) {
    v1::ToWorker message;
    v1::Placement& placement = *message.mutable_placement();
    placement.set_number(1);
    placement.add_shards();
    v1::PlacedShard& other = *placement.add_shards();
    other.set_shard(1);
    other.set_name("b");
    other.set_endpoint("other:29600");
    ASSERT_TRUE(DecodeToWorker(message.SerializeAsString()).ok());
    change(placement);
    const auto back = DecodeToWorker(message.SerializeAsString());
    EXPECT_FALSE(back.ok()) << field;
    EXPECT_THAT(std::string(back.status().message()), HasSubstr(field));
  };
  using P = v1::Placement&;
  refused([](P p) { p.clear_number(); }, "placement.number is required");
  refused([](P p) { p.clear_shards(); }, "placement.shards is required");
  refused([](P p) { p.mutable_shards(1)->set_shard(0); }, "placement.shards has shard 0 twice");
  refused([](P p) { p.mutable_shards(1)->clear_endpoint(); }, "shards[1].endpoint is required");
  refused([](P p) { p.mutable_shards(1)->set_name("no label"); }, "shards[1].name");
  refused([](P p) { p.add_lost(2); }, "placement.lost has shard 2, which is not in the list");
  refused([](P p) { p.add_lost(1), p.add_lost(1); }, "placement.lost has shard 1");
  refused([](P p) { p.add_lost(1), p.add_lost(0); }, "placement.lost has all shards");
}

TEST(SessionRules, APlacementOfAWelcomeThatSaysNothingIsIgnored) {
  v1::ToWorker message;
  message.ParseFromString(*Encode(ToWorker(RandomMessages(1).Make<Welcome>())));
  message.mutable_welcome()->clear_placement();
  message.mutable_welcome()->add_placement();
  const auto back = DecodeToWorker(message.SerializeAsString());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(std::get<Welcome>(*back).placements.empty());
}

TEST(SessionRules, WelcomeCannotSendAWorkerElsewhere) {
  using P = v1::ToWorker*;
  ExpectRefused<Welcome>([](P p) { p->mutable_welcome()->set_redirect("other:29600"); },
                         "welcome.redirect");
  ExpectRefused<Welcome>([](P p) { p->mutable_welcome()->set_frame_bytes(kChunkBytes + 1); },
                         "welcome.frame_bytes is not a multiple");
  ExpectRefused<Welcome>([](P p) { p->mutable_welcome()->set_frame_bytes(16 * kChunkBytes); },
                         "welcome.frame_bytes is 4194304, more than 3932160");
}

TEST(SessionLimits, TheLargestVerdictFits) {
  Verdict verdict;
  verdict.record.round = ~RoundNumber{0};
  RoundValue& value = verdict.record.value;
  value.outcome = Outcome::kCommitted;
  value.spec.op = ReduceOp::kSum;
  constexpr uint64_t kMost = ~uint64_t{0};
  std::vector<WorkerId> members;
  for (uint32_t i = 0; i < kMaxWorkers; ++i) {
    std::string worker = absl::StrCat("w", 100000 + i);
    worker.resize(kMaxWorkerIdBytes, 'x');
    value.contributors.push_back({worker, {kMost, kMost}, kMaxCount, 1.0});
    members.push_back(worker);
  }
  verdict.record.next.members = members;
  for (uint32_t i = 0; i < kMaxTensors; ++i) value.tensor_divisors.push_back({i, kMost});
  value.facts.tensor_squared_norms.assign(kMaxTensors, 1.0);
  const absl::StatusOr<std::string> bytes = Encode(ToWorker(verdict));
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto back = DecodeToWorker(*bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(std::get<Verdict>(*back) == verdict);
}

}  // namespace
}  // namespace basin::wire
