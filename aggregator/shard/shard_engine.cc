// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/shard/shard_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

// People do not see older numbers as old, and a message is small beside those of a round.
constexpr absl::Duration kReportEvery = absl::Seconds(1);

void AddTo(ByteCounters& sum, const ByteCounters& more) {
  sum.contribution_bytes += more.contribution_bytes;
  sum.result_bytes += more.result_bytes;
  sum.corrupt_frames += more.corrupt_frames;
  sum.reductions += more.reductions;
  sum.nonfinite_reductions += more.nonfinite_reductions;
  for (const auto& [device, seconds] : more.reduce_seconds) sum.reduce_seconds[device] += seconds;
}

}  // namespace

ShardEngine::ShardEngine(std::string name, const ByteThreadsOptions& options, Clock& clock,
                         const kernels::Reducer& reducer, accelerator::ReduceDevices* devices,
                         CoordinatorLink& coordinator, ShardReport report)
    : name_(std::move(name)),
      clock_(clock),
      coordinator_(coordinator),
      report_(std::move(report)),
      events_(clock),
      threads_(options, reducer, devices) {}

ShardEngine::~ShardEngine() { Stop(); }

void ShardEngine::Start(Transport& transport) {
  transport_ = &transport;
  events_.Start();
  thread_ = std::thread([this] {
    NameThread("basin-loop");
    Loop();
  });
}

void ShardEngine::ExpectEnd() {
  Post(kNow, [this](absl::Time) { draining_ = true; });
}

void ShardEngine::Stop() {
  // What is left must not outlive the transport.
  std::vector<Posted> left = events_.Stop(thread_);
  left.clear();
  queue_ = FairQueue<Posted>();
  runner_.reset();
  threads_.Stop();
}

// ---- any thread

void ShardEngine::Post(uint64_t connection, Task task) {
  events_.Post({connection, clock_.Now(), std::move(task)});
}

StreamId ShardEngine::OpenStream(SessionToken token) {
  const StreamId stream = next_stream_.fetch_add(1);
  Post(stream, [this, stream, token](absl::Time) {
    if (runner_ != nullptr) return runner_->StreamOpened(stream, token);
    transport_->CloseStream(
        stream, absl::UnavailableError(absl::StrCat(
                    "Shard ", name_, " is not connected with its coordinator now. Try again.")));
  });
  return stream;
}

void ShardEngine::OnFrame(StreamId stream, IncomingFrame frame) {
  Post(stream, [this, stream, frame = std::move(frame)](absl::Time) mutable {
    if (runner_ != nullptr) runner_->FrameReceived(stream, std::move(frame));
  });
}

void ShardEngine::CloseStream(StreamId stream) {
  Post(stream, [this, stream](absl::Time) {
    if (runner_ != nullptr) runner_->StreamClosed(stream);
  });
}

void ShardEngine::OnLinked(uint64_t link, const ShardWelcome& welcome) {
  Post(kNow, [this, link, welcome](absl::Time) { Linked(link, welcome); });
}

void ShardEngine::OnSteps(uint64_t link, std::vector<ShardStep> steps, uint64_t bytes) {
  Post(kNow, [this, link, steps = std::move(steps), bytes](absl::Time now) {
    Step(link, steps, bytes, now);
  });
}

void ShardEngine::OnUnlinked(const absl::Status& why) {
  Post(kNow, [this, why](absl::Time) { Unlinked(why); });
}

void ShardEngine::OnRefused(const absl::Status& why) {
  report_("coordinator_refused", true, std::string(why.message()));
}

void ShardEngine::Inspect(std::function<void(const ShardSnapshot&)> look) {
  Post(kNow, [this, look = std::move(look)](absl::Time) { look(Snapshot()); });
}

absl::Duration ShardEngine::InboxDelay() const {
  const absl::Time now = clock_.Now();
  absl::Time oldest = now;
  events_.Peek([&oldest](const Posted& first) { oldest = std::min(oldest, first.at); });
  return now - oldest;
}

// ---- the loop

void ShardEngine::TakePosted() {
  for (Posted& posted : taken_) {
    if (posted.connection == kNow) {
      queue_.AddNow(std::move(posted));
    } else {
      const uint64_t connection = posted.connection;
      queue_.Add(connection, std::move(posted));
    }
  }
  taken_.clear();
}

void ShardEngine::Loop() {
  while (events_.AwaitWork([this] { return report_due_; }, taken_)) {
    TakePosted();
    while (!queue_.empty()) {
      const Posted posted = queue_.Next();
      const absl::Time now = clock_.Now();
      posted.task(now);
      report_due_ = next_report_;
      ReportIfDue(now);
      if (runner_ != nullptr) runner_->Flush();
      transport_->Flush();
      if (!events_.arrived()) continue;
      events_.Take(taken_);
      TakePosted();
    }
    ReportIfDue(clock_.Now());
    if (runner_ != nullptr) runner_->Flush();
    events_.LetGo(false, report_due_);
  }
}

void ShardEngine::ReportIfDue(absl::Time now) {
  if (now < report_due_) return;
  report_due_ = absl::InfiniteFuture();
  next_report_ = now + kReportEvery;
  if (runner_ != nullptr) runner_->ReportUse();
}

ShardDependencies ShardEngine::Dependencies() {
  ShardDependencies dependencies;
  dependencies.bytes.transport = transport_;
  threads_.Connect(dependencies.bytes);
  dependencies.report = [this, link = link_](const std::vector<ShardEvent>& events) {
    coordinator_.Send(link, events);
  };
  return dependencies;
}

// What is left of an earlier link is dropped.
ByteThreads::Reports ShardEngine::ReportsOf(uint64_t link) {
  ByteThreads::Reports reports;
  reports.reduced = [this, link](const std::shared_ptr<const Reduction>& reduction) {
    Post(kNow, [this, link, reduction](absl::Time) {
      if (runner_ != nullptr && link_ == link) runner_->Reduced(*reduction);
    });
  };
  reports.arena_made = [this, link](JobId job, LaneIndex lane, uint64_t bytes,
                                    const std::shared_ptr<ResultArena>& arena) {
    Post(kNow, [this, link, job, lane, bytes, arena](absl::Time now) {
      if (runner_ != nullptr && link_ == link) runner_->ArenaMade(job, lane, bytes, arena, now);
    });
  };
  reports.device_failed = [this](const std::string& why) {
    report_("reduce_device_failed", true, why);
  };
  return reports;
}

void ShardEngine::Linked(uint64_t link, const ShardWelcome& welcome) {
  shard_ = welcome.shard;
  link_ = link;
  ++links_;
  threads_.Start(ReportsOf(link));
  runner_ = std::make_unique<ShardRunner>(Dependencies());
  report_("linked", false,
          absl::StrCat("Shard ", name_, " is connected with its coordinator, as number ", shard_,
                       "; term ", welcome.term, "."));
}

void ShardEngine::Unlinked(const absl::Status& why) {
  if (runner_ == nullptr) return;
  const absl::Status over = absl::UnavailableError(
      draining_
          ? absl::StrCat("Shard ", name_, " drains, and holds nothing any more.")
          : absl::StrCat("Shard ", name_,
                         " has lost its coordinator, and with that what it held: ", why.message()));
  for (const auto& [stream, accepted] : runner_->streams()) transport_->CloseStream(stream, over);
  AddTo(before_, runner_->bytes().counters());
  threads_.Stop();
  runner_.reset();
  report_("unlinked", !draining_, std::string(over.message()));
}

void ShardEngine::Step(uint64_t link, const std::vector<ShardStep>& steps, uint64_t bytes,
                       absl::Time now) {
  if (runner_ == nullptr || link != link_) return;
  for (const ShardStep& step : steps) {
    const absl::Status done = runner_->Step(step, now);
    if (done.ok()) continue;
    // OnUnlinked follows.
    return coordinator_.Break(
        link, absl::InternalError(absl::StrCat(
                  "An order of the coordinator cannot be carried out: ", done.message(),
                  ". This is a fault of Basin; everything that was here is asked for again.")));
  }
  coordinator_.Consumed(link, bytes);
}

ShardSnapshot ShardEngine::Snapshot() const {
  ShardSnapshot snapshot;
  snapshot.links = links_;
  snapshot.counters = before_;
  const absl::Status view = coordinator_.view();
  snapshot.linked = runner_ != nullptr && view.ok();
  snapshot.why = std::string(view.message());
  if (runner_ == nullptr) return snapshot;
  snapshot.shard = shard_;
  AddTo(snapshot.counters, runner_->bytes().counters());
  snapshot.parked_bytes = runner_->bytes().parked_bytes();
  snapshot.result_bytes = runner_->bytes().result_bytes();
  snapshot.streams = runner_->streams().size();
  snapshot.unanswered_frames = runner_->unanswered_frames();
  return snapshot;
}

}  // namespace basin::aggregator
