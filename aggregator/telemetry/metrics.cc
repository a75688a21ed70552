// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/telemetry/metrics.h"

#include <cstring>
#include <sstream>

#include "aggregator/core/spec.h"
#include "prometheus/text_serializer.h"

namespace basin::aggregator {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildHistogram;
using prometheus::ClientMetric;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Histogram;
using prometheus::Labels;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr char kJob[] = "training_job";

// From a small model on one machine to a large one between data centers.
const std::vector<double>& DurationBuckets() {
  static const std::vector<double>& buckets = *new std::vector<double>{
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};
  return buckets;
}

Family<Counter>& CounterFamily(prometheus::Registry& registry, const char* name, const char* help) {
  return BuildCounter().Name(name).Help(help).Register(registry);
}

using LabelList = std::vector<ClientMetric::Label>;

// A family that is made for one scrape.
class Scraped {
 public:
  Scraped(MetricType type, const char* name, const char* help) {
    family_.name = name;
    family_.help = help;
    family_.type = type;
  }
  Scraped& Add(LabelList labels, double value) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.gauge.value = value;
    metric.counter.value = value;
    family_.metric.push_back(std::move(metric));
    return *this;
  }
  Scraped& Add(double value) { return Add({}, value); }
  // REQUIRES: the family is a summary.
  void AddSummary(LabelList labels, uint64_t count, double sum) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.summary.sample_count = count;
    metric.summary.sample_sum = sum;
    family_.metric.push_back(std::move(metric));
  }
  MetricFamily Take() { return std::move(family_); }

 private:
  MetricFamily family_;
};

Scraped Gauge(const char* name, const char* help) { return {MetricType::Gauge, name, help}; }
Scraped Sum(const char* name, const char* help) { return {MetricType::Counter, name, help}; }

// The last round of each lane: its specification and its value.
class ResultSeries {
 public:
  void Add(const LabelList& lane, const ResultSnapshot& last) {
    LabelList labels = lane;
    labels.push_back({"op", ReduceOpName(last.spec.op)});
    labels.push_back({"contributes", KindName(last.spec.kind)});
    labels.push_back({"weight_by", WeightByName(last.spec.weight_by)});
    labels.push_back({"denominator", DenominatorName(last.spec.denominator)});
    labels.push_back({"contract_version", std::to_string(last.contract_version)});
    info_.Add(std::move(labels), 1);
    const auto add = [&](Scraped& to, const std::optional<uint64_t>& value) {
      if (value.has_value()) to.Add(lane, static_cast<double>(*value));
    };
    add(generation_, last.generation.counter);
    add(world_size_, last.world_size);
    add(contributors_, last.contributors);
    add(divisor_, last.divisor);
    add(weights_, last.sum_of_weights);
    add(samples_, last.effective_batch.samples);
    add(tokens_, last.effective_batch.tokens);
    add(micro_batches_, last.effective_batch.micro_batches);
    add(overflow_, last.overflow ? 1 : 0);
    prescale_.Add(lane, last.spec.prescale);
    postscale_.Add(lane, last.spec.postscale);
    predivide_.Add(lane, last.spec.predivide);
    loss_scale_.Add(lane, last.spec.loss_scale);
    if (last.norm.has_value()) norm_.Add(lane, *last.norm);
    for (const auto& [tensor, norm] : last.tensor_norms) {
      LabelList labels = lane;
      labels.push_back({"tensor", tensor});
      tensor_norms_.Add(std::move(labels), norm);
    }
    if (last.nonfinite.has_value()) {
      LabelList labels = lane;
      labels.push_back({"worker", last.nonfinite->worker});
      labels.push_back({"tensor", last.nonfinite_tensor});
      nonfinite_.Add(std::move(labels), static_cast<double>(last.nonfinite->element));
    }
  }

  void Take(std::vector<MetricFamily>& families) {
    for (Scraped* values :
         {&info_, &generation_, &world_size_, &contributors_, &divisor_, &weights_, &samples_,
          &tokens_, &micro_batches_, &overflow_, &prescale_, &postscale_, &predivide_, &loss_scale_,
          &norm_, &tensor_norms_, &nonfinite_}) {
      families.push_back(values->Take());
    }
  }

 private:
  Scraped info_ =
      Gauge("basin_result_info", "1, with the reduction of the lane's last round in the labels.");
  Scraped generation_ = Gauge("basin_result_generation",
                              "Generation of the members when the last result was reduced.");
  Scraped world_size_ =
      Gauge("basin_world_size", "Trainers of the job when the lane's last result was reduced.");
  Scraped contributors_ =
      Gauge("basin_contributors", "Trainers counted in the lane's last result.");
  Scraped divisor_ = Gauge("basin_divisor", "Divisor of the lane's last result.");
  Scraped weights_ = Gauge(
      "basin_sum_of_weights",
      "Sum of the contributors' weights in the lane's last result; without weights, their number.");
  Scraped samples_ = Gauge("basin_effective_batch_samples", "Samples of the lane's last result.");
  Scraped tokens_ = Gauge("basin_effective_batch_tokens", "Tokens of the lane's last result.");
  Scraped micro_batches_ =
      Gauge("basin_effective_batch_micro_batches", "Micro-batches of the lane's last result.");
  Scraped overflow_ =
      Gauge("basin_result_overflow", "1 if a number of the lane's last result overflowed.");
  Scraped prescale_ = Gauge("basin_prescale", "Prescale of the lane's last result, as used.");
  Scraped postscale_ = Gauge("basin_postscale", "Postscale of the lane's last result, as used.");
  Scraped predivide_ = Gauge("basin_predivide", "Predivide of the lane's last result, as used.");
  Scraped loss_scale_ = Gauge("basin_loss_scale",
                              "Loss scale of the lane's last result: the workers agreed on it, and "
                              "Basin does not apply it.");
  Scraped norm_ = Gauge("basin_gradient_norm", "2-norm of the lane's last result.");
  Scraped tensor_norms_ =
      Gauge("basin_tensor_gradient_norm",
            "2-norm of a tensor of the lane's last result, for the first 256 tensors.");
  Scraped nonfinite_ =
      Gauge("basin_nonfinite_element",
            "Element of the first input of the lane's last round that was not finite.");
};

// What became of the time of the members of each job.
void AddGoodput(const Snapshot& snapshot, std::vector<MetricFamily>& families) {
  Scraped ratio =
      Gauge("basin_goodput_ratio", "The part of its members' time that became committed work.");
  Scraped worked = Sum("basin_worked_seconds_total", "Time of members that became committed work.");
  Scraped lost = Sum("basin_lost_seconds_total",
                     "Time of members that did not become committed work, by what it went to.");
  // The counters have only what a verdict has settled, so that they never become less. The rest is
  // a gauge, because a verdict may make another use of it.
  Scraped open = Gauge("basin_open_seconds",
                       "Time of members since the last verdict, by what it is at the moment.");
  Scraped waited = Sum("basin_worker_waited_seconds_total",
                       "Time that all members together waited for the member.");
  Scraped lateness(MetricType::Summary, "basin_worker_lateness_seconds",
                   "Time from the first contribution of a round to that of the member.");
  for (const JobSnapshot& job : snapshot.jobs) {
    if (job.goodput.ratio.has_value()) ratio.Add({{kJob, job.job}}, *job.goodput.ratio);
    for (const GoodputView::Use& use : job.goodput.uses) {
      const LabelList labels = {{kJob, job.job}, {"reason", TimeUseName(use.use)}};
      if (use.use == TimeUse::kWorked) {
        worked.Add({{kJob, job.job}}, absl::ToDoubleSeconds(use.settled));
      } else if (use.use != TimeUse::kPending) {
        lost.Add(labels, absl::ToDoubleSeconds(use.settled));
      }
      if (use.use != TimeUse::kWorked && use.use != TimeUse::kDiscarded) {
        open.Add(labels, absl::ToDoubleSeconds(use.open));
      }
    }
    for (const MemberSnapshot& member : job.members) {
      const LabelList labels = {{kJob, job.job}, {"worker", member.worker}};
      waited.Add(labels, absl::ToDoubleSeconds(member.waited_for));
      lateness.AddSummary(labels, member.lateness.rounds,
                          absl::ToDoubleSeconds(member.lateness.total));
    }
  }
  for (Scraped* values : {&ratio, &worked, &lost, &open, &waited, &lateness}) {
    families.push_back(values->Take());
  }
}

void AddJobs(const Snapshot& snapshot, std::vector<MetricFamily>& families) {
  Scraped states = Gauge("basin_job_state", "1 for the current state of the job.");
  Scraped generation =
      Gauge("basin_generation", "Generation of the job's members, within the term.");
  Scraped members = Gauge("basin_members", "Workers of the job in each state.");
  Scraped last_messages =
      Gauge("basin_worker_last_seen_seconds",
            "Seconds since the last message of the member, for a job's first 256 members.");
  Scraped rounds = Gauge("basin_round", "Number of the lane's open or next round.");
  Scraped open = Gauge("basin_round_open", "1 while the lane's round is open.");
  Scraped stalled =
      Gauge("basin_workers_without_credit",
            "Workers that wait for room before they can send more to the open round.");
  ResultSeries results;
  for (const JobSnapshot& job : snapshot.jobs) {
    states.Add({{kJob, job.job}, {"state", job.state}}, 1);
    generation.Add({{kJob, job.job}}, static_cast<double>(job.generation));
    for (const auto& [state, count] : job.workers) {
      members.Add({{kJob, job.job}, {"state", state}}, count);
    }
    for (const auto& [worker, since] : job.last_message) {
      last_messages.Add({{kJob, job.job}, {"worker", worker}}, absl::ToDoubleSeconds(since));
    }
    for (const LaneSnapshot& lane : job.lanes) {
      const LabelList labels = {{kJob, job.job}, {"lane", lane.lane}};
      rounds.Add(labels, static_cast<double>(lane.round));
      open.Add(labels, lane.open ? 1 : 0);
      stalled.Add(labels, lane.without_credit);
      if (lane.last.has_value()) results.Add(labels, *lane.last);
    }
  }
  for (Scraped* values :
       {&states, &generation, &members, &last_messages, &rounds, &open, &stalled}) {
    families.push_back(values->Take());
  }
  results.Take(families);
}

void AddService(const Snapshot& snapshot, std::vector<MetricFamily>& families) {
  const RunnerCounters& counters = snapshot.counters;
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  for (const Total& total : TotalsOfBytes(counters)) {
    families.push_back(Sum(total.name, total.help).Add(number(total.value)).Take());
  }
  families.push_back(Sum("basin_results_resent_total",
                         "Frames that were sent again after the loss of a data stream.")
                         .Add(number(counters.results_resent))
                         .Take());
  Scraped reduce_seconds = Sum(
      "basin_reduce_seconds_total",
      "Time spent on reductions, waiting for a device included, summed over all reduce threads.");
  for (const auto& [device, seconds] : counters.reduce_seconds) {
    reduce_seconds.Add({{"device", device}}, seconds);
  }
  families.push_back(reduce_seconds.Take());
  Scraped memory = Gauge("basin_buffer_bytes", "Memory in use by kind; the kinds do not overlap.");
  for (const MemoryUse& use : snapshot.memory) {
    memory.Add({{"kind", use.kind}}, number(use.bytes));
  }
  families.push_back(memory.Take());
  families.push_back(Gauge("basin_reserved_bytes", "The part of memory.budget that jobs reserve.")
                         .Add(number(snapshot.reserved_bytes))
                         .Take());
  families.push_back(
      Gauge("basin_buffer_limit_bytes", "memory.budget.").Add(number(snapshot.limit_bytes)).Take());
  families.push_back(Gauge("basin_jobs", "Jobs that the aggregator knows.")
                         .Add(number(snapshot.jobs.size()))
                         .Take());
  families.push_back(
      Gauge("basin_sessions", "Session streams.").Add(number(snapshot.sessions)).Take());
  families.push_back(Gauge("basin_streams", "Data streams.").Add(number(snapshot.streams)).Take());
  families.push_back(Gauge("basin_draining", "1 while the aggregator drains.")
                         .Add(snapshot.draining ? 1 : 0)
                         .Take());
}

}  // namespace

// The series of one job. Where a pointer is null, nothing was counted yet.
struct Metrics::JobSeries {
  Counter* committed = nullptr;
  Counter* aborted = nullptr;
  Counter* attempts = nullptr;
  Counter* credit_stalls = nullptr;
  Counter* accepted = nullptr;
  Counter* duplicate = nullptr;
  Counter* stale = nullptr;
  Counter* refused = nullptr;
  Counter* lost = nullptr;
  Counter* superseded = nullptr;
  Counter* rejected = nullptr;
  Counter* withdrawn = nullptr;
  Counter* carried = nullptr;
  Counter* deferred = nullptr;
  Counter* dropped = nullptr;
  Counter* left_out = nullptr;
  Counter* unusual = nullptr;
  Counter* late = nullptr;
  Histogram* duration = nullptr;
  Histogram* straggler = nullptr;
  std::map<std::string, std::pair<RoundNumber, absl::Time>> opened;  // By lane.
};

Metrics::Metrics(std::string version)
    : version_(std::move(version)),
      events_(CounterFamily(registry_, "basin_events_total",
                            "Decisions by kind, with the names that the log uses.")),
      rounds_(CounterFamily(registry_, "basin_rounds_total", "Rounds that have a verdict.")),
      attempts_(CounterFamily(registry_, "basin_attempts_restarted_total",
                              "Rounds that lost a worker and were reduced again.")),
      credit_stalls_(CounterFamily(registry_, "basin_credit_stalls_total",
                                   "Times that a worker had to wait for room before it could send "
                                   "more to a round, counted at the verdict.")),
      frames_(CounterFamily(registry_, "basin_contribution_frames_total",
                            "Frames of gradients that had no effect, by reason.")),
      evictions_(CounterFamily(registry_, "basin_evictions_total",
                               "Workers that were lost, or replaced by a newer process.")),
      contributions_(
          CounterFamily(registry_, "basin_contributions_total",
                        "Contributions: counted in a committed round (accepted), or why not.")),
      unusual_(CounterFamily(registry_, "basin_contributions_unusual_total",
                             "Times that a worker's contributions became not finite or far from "
                             "the usual norm. They were counted.")),
      late_(
          CounterFamily(registry_, "basin_workers_late_total",
                        "Times that a round waited longer than round.late_warning for a worker.")),
      durations_(BuildHistogram()
                     .Name("basin_round_duration_seconds")
                     .Help("Time from the first begin of a round to its verdict.")
                     .Register(registry_)),
      stragglers_(BuildHistogram()
                      .Name("basin_straggler_wait_seconds")
                      .Help("Time that a round waited for its last worker alone.")
                      .Register(registry_)),
      state_file_failures_(CounterFamily(registry_, "basin_state_file_failures_total",
                                         "Times that the state file could not be written.")
                               .Add({})) {
  // Alerts watch their increase, which begins at 0 and not with the first one.
  for (const NoteKind kind :
       {NoteKind::kLineageConflict, NoteKind::kJobRefused, NoteKind::kWorkerRefused,
        NoteKind::kAddressRefused, NoteKind::kShardUp, NoteKind::kShardLost,
        NoteKind::kShardDrained, NoteKind::kShardTooSmall, NoteKind::kShardUnreachable}) {
    EventCounter(kind);
  }
}

Metrics::~Metrics() = default;

Counter& Metrics::EventCounter(NoteKind kind) {
  Counter*& event = event_counters_[kind];
  if (event == nullptr) event = &events_.Add({{"event", NoteKindName(kind)}});
  return *event;
}

void Metrics::Count(const Note& note, absl::Time now) {
  EventCounter(note.kind).Increment();
  if (note.kind == NoteKind::kStateFileFailed) CountStateFileFailure();
  if (note.kind == NoteKind::kJobAdmitted) AddJob(note.job);
  if (const auto found = jobs_.find(note.job); found != jobs_.end()) {
    CountForJob(*found->second, note, now);
  }
  if (note.kind == NoteKind::kJobEnded) RemoveJob(note.job);
}

void Metrics::CountForJob(JobSeries& series, const Note& note, absl::Time now) {
  switch (note.kind) {
    case NoteKind::kRoundOpened:
      series.opened[note.lane] = {note.round, now};
      break;
    case NoteKind::kRoundCommitted:
    case NoteKind::kRoundAborted: {
      (note.kind == NoteKind::kRoundCommitted ? series.committed : series.aborted)->Increment();
      series.accepted->Increment(static_cast<double>(note.contributions));
      series.credit_stalls->Increment(static_cast<double>(note.credit_stalls));
      const auto opened = series.opened.find(note.lane);
      if (opened == series.opened.end()) break;
      if (opened->second.first == note.round) {
        series.duration->Observe(absl::ToDoubleSeconds(now - opened->second.second));
      }
      series.opened.erase(opened);
      break;
    }
    case NoteKind::kRoundPrepared:
      if (!note.waited_for.empty()) series.straggler->Observe(absl::ToDoubleSeconds(note.waited));
      break;
    case NoteKind::kAttemptRestarted:
      series.attempts->Increment();
      break;
    case NoteKind::kWorkerLost:
      series.lost->Increment();
      break;
    case NoteKind::kWorkerSuperseded:
      series.superseded->Increment();
      break;
    case NoteKind::kContributionRejected:
      series.rejected->Increment();
      break;
    case NoteKind::kContributionWithdrawn:
      series.withdrawn->Increment();
      break;
    case NoteKind::kContributionCarried:
      series.carried->Increment();
      break;
    case NoteKind::kContributionDropped:
      series.dropped->Increment();
      break;
    case NoteKind::kContributionLate:
      series.left_out->Increment();
      break;
    case NoteKind::kContributionDeferred:
      series.deferred->Increment();
      break;
    case NoteKind::kContributionUnusual:
      series.unusual->Increment();
      break;
    case NoteKind::kWorkerLate:
      series.late->Increment();
      break;
    case NoteKind::kFrameDuplicate:
      series.duplicate->Increment();
      break;
    case NoteKind::kFrameStale:
      series.stale->Increment();
      break;
    case NoteKind::kFrameRefused:
      series.refused->Increment();
      break;
    default:
      break;
  }
}

void Metrics::AddJob(const JobName& job) {
  std::unique_ptr<JobSeries>& series = jobs_[job];
  if (series != nullptr) return;  // It is a new run.
  series = std::make_unique<JobSeries>();
  const auto labels = [&](const char* name, const char* value) {
    return Labels{{kJob, job}, {name, value}};
  };
  series->committed = &rounds_.Add(labels("outcome", "committed"));
  series->aborted = &rounds_.Add(labels("outcome", "aborted"));
  series->attempts = &attempts_.Add({{kJob, job}});
  series->credit_stalls = &credit_stalls_.Add({{kJob, job}});
  series->duplicate = &frames_.Add(labels("result", "duplicate"));
  series->stale = &frames_.Add(labels("result", "stale"));
  series->refused = &frames_.Add(labels("result", "refused"));
  series->accepted = &contributions_.Add(labels("result", "accepted"));
  series->lost = &evictions_.Add(labels("reason", "lost"));
  series->superseded = &evictions_.Add(labels("reason", "superseded"));
  series->rejected = &contributions_.Add(labels("result", "rejected"));
  series->withdrawn = &contributions_.Add(labels("result", "withdrawn"));
  series->carried = &contributions_.Add(labels("result", "carried"));
  series->dropped = &contributions_.Add(labels("result", "dropped"));
  series->left_out = &contributions_.Add(labels("result", "late"));
  series->deferred = &contributions_.Add(labels("result", "deferred"));
  series->unusual = &unusual_.Add({{kJob, job}});
  series->late = &late_.Add({{kJob, job}});
  series->duration = &durations_.Add({{kJob, job}}, DurationBuckets());
  series->straggler = &stragglers_.Add({{kJob, job}}, DurationBuckets());
}

void Metrics::RemoveJob(const JobName& job) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  JobSeries& series = *found->second;
  rounds_.Remove(series.committed);
  rounds_.Remove(series.aborted);
  attempts_.Remove(series.attempts);
  credit_stalls_.Remove(series.credit_stalls);
  frames_.Remove(series.duplicate);
  frames_.Remove(series.stale);
  frames_.Remove(series.refused);
  contributions_.Remove(series.accepted);
  evictions_.Remove(series.lost);
  evictions_.Remove(series.superseded);
  contributions_.Remove(series.rejected);
  contributions_.Remove(series.withdrawn);
  contributions_.Remove(series.carried);
  contributions_.Remove(series.deferred);
  contributions_.Remove(series.dropped);
  contributions_.Remove(series.left_out);
  unusual_.Remove(series.unusual);
  late_.Remove(series.late);
  durations_.Remove(series.duration);
  stragglers_.Remove(series.straggler);
  jobs_.erase(found);
}

std::vector<Total> TotalsOfBytes(const ByteCounters& counters) {
  return {
      {"basin_contribution_bytes_total", "Payload bytes of received gradients.",
       counters.contribution_bytes},
      {"basin_result_bytes_total", "Payload bytes of sent results, counted once for each receiver.",
       counters.result_bytes},
      {"basin_checksum_failures_total", "Frames whose bytes did not match their digest.",
       counters.corrupt_frames},
      {"basin_reductions_total", "Ranges of chunks that were added up.", counters.reductions},
      {"basin_nonfinite_total", "Ranges of chunks with an input that was NaN or infinite.",
       counters.nonfinite_reductions},
  };
}

std::string Metrics::Text(const std::optional<Snapshot>& snapshot, absl::Duration loop_delay,
                          const std::vector<Total>& totals) const {
  std::vector<MetricFamily> families = registry_.Collect();
  if (snapshot.has_value()) {
    AddJobs(*snapshot, families);
    AddGoodput(*snapshot, families);
    AddService(*snapshot, families);
  }
  for (size_t i = 0; i < totals.size();) {
    const Total& first = totals[i];
    const bool gauge = first.kind == Total::Kind::kGauge;
    Scraped family = gauge ? Gauge(first.name, first.help) : Sum(first.name, first.help);
    for (; i < totals.size() && std::strcmp(totals[i].name, first.name) == 0; ++i) {
      LabelList labels;
      if (*totals[i].reason != '\0') labels.push_back({"reason", totals[i].reason});
      family.Add(std::move(labels), static_cast<double>(totals[i].value));
    }
    families.push_back(family.Take());
  }
  families.push_back(
      Gauge("basin_loop_delay_seconds", "Time that the oldest event has waited for the event loop.")
          .Add(absl::ToDoubleSeconds(loop_delay))
          .Take());
  families.push_back(Gauge("basin_build_info", "1, with the version in a label.")
                         .Add({{"version", version_}}, 1)
                         .Take());
  for (MetricFamily& family : ProcessMetrics()) families.push_back(std::move(family));
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return text.str();
}

}  // namespace basin::aggregator
